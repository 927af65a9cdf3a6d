"""The commands: they take flags and write files."""
