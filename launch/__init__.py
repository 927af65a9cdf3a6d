"""Commands that people run: flags in, files out."""
