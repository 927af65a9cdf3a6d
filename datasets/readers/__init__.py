"""Readers of files, by their form; they return `datasets.examples.Examples`."""
