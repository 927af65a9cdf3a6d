"""Sparse text, and the data sets of the Extreme Classification Repository."""
