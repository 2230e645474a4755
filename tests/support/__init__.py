"""Streams and helpers that several tests share."""
