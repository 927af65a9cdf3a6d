"""Runs TFF computations in this process and its TensorFlow runtime.

`context` is what TFF talks to. A computation becomes a `program` (phases of
server and client steps), whose phases become graph calls (`phases`), which
`execution` runs, several clients at a time. `expressions` and `select` say what
steps compute, `imported` brings TFF's serialized graphs into this process, and
`values` and `updates` are how values are held between the calls.
"""
