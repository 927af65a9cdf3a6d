"""Examples, and which client has which."""
