"""Our forests and their rivals on the same streams: accuracy, speed, memory, ablations."""
