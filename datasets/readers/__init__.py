"""Readers of the file formats; most of them return `datasets.examples.Examples`."""
