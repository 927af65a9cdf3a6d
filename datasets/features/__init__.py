"""One's own rows of features: tables and arrays."""
