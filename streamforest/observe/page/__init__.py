"""The live page: what a browser is given, the numbers behind it, and the status row."""
