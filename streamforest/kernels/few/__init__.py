"""Trees grown to purity, and leaf shares of a class of few rows."""
