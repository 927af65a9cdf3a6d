"""Split rules: which client has which examples."""
