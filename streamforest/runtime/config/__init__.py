"""From a TOML file to a checked pipeline."""
