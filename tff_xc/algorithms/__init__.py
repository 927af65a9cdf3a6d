"""One file per paper's family of algorithms, and the registry that names them."""
