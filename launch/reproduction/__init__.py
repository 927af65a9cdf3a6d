"""Measures the papers' tables and figures, and compares them with the printed numbers."""
