"""The consistent and the online forest."""
