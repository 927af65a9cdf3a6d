"""Runs TFF computations in this process and its TensorFlow runtime.

`context` is TFF's entry point. A computation becomes a `program` (phases of
server and client steps). Its phases become graph calls (`phases`), which
`execution` runs, several clients in parallel. `expressions` defines the
computation of steps, `imported` imports TFF's serialized graphs into this process,
and `values` and `updates` hold values between calls.
"""
