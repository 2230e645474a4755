"""Resume after a crash, follow as a standby, take over."""
