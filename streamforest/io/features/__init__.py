"""Records to events: where label and id are, which columns count, and what each column holds."""
