"""Kafka as the log of a pipeline."""
