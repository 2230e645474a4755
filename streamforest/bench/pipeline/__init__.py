"""The pipeline on a real broker: throughput, snapshot stalls, a soak."""
