"""Commits, the journal and snapshots."""
