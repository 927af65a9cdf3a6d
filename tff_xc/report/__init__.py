"""Reads the files of runs, and writes tables and pictures."""
