"""Measurements of a paper that are neither formulas nor plain runs."""
