"""Options of rounds: each one is a file, whose fields are flags. `conflicts` says what excludes what."""
