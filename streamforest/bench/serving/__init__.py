"""Answers over HTTP: `streamforest serve` beside a plain FastAPI server with a River model."""
