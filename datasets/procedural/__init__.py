"""Data sets that are drawn, not read."""
