"""Synthetic data sets, which are generated instead of read from files."""
