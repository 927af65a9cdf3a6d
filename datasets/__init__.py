"""Data sets: files as their owners distribute them, turned into client data."""
