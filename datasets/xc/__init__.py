"""Sparse text, and the sets of the Extreme Classification Repository."""
