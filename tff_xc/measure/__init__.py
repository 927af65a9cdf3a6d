"""Measures scores of models, message sizes, leakage and privacy."""
