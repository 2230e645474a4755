"""Connections to secured brokers, and what is wrong when one fails."""
