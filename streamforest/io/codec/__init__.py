"""Bytes to events, and predictions and dead letters to bytes."""
