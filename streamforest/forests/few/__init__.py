"""The few-shot forest."""
