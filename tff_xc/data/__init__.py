"""Examples, and their partition among clients."""
