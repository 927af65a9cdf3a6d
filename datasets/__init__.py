"""Data sets: turns files as their owners distribute them into client data."""
