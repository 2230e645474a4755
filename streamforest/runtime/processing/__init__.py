"""An event's way: poll, decode, admit, advance, publish."""
