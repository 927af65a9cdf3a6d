"""Synthetic data sets. The program generates their examples instead of reading files."""
