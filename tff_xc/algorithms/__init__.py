"""One file for each paper's algorithms, and the registry of all names."""
