"""Readers of each form of file; they return `datasets.examples.Examples`."""
