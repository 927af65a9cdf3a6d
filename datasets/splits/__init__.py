"""Assigns examples to clients."""
