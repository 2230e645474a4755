"""Answers over HTTP: a replica that follows a pipeline, or one snapshot, and the server in front of it."""
