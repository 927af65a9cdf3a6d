"""Options of rounds. Each module defines one option, whose fields are flags.

`conflicts` lists the options that exclude each other.
"""
