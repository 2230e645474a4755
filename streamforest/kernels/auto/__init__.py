"""What the auto forest has beside its two families: recent neighbours, and the blend."""
