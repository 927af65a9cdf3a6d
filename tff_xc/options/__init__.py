"""Options of rounds, one module each, with flags as fields. `conflicts` lists exclusions."""
