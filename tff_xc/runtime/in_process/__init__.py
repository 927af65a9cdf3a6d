"""Runs TFF computations in this process and its TensorFlow runtime.

`context` is TFF's entry point. `program` compiles a computation to phases of server steps and
client steps. `phases` combines the steps of a phase into a few calls of TensorFlow graphs.
`execution` makes these calls, for several clients in parallel. `expressions` compiles the
steps. `imported` imports TFF's serialized graphs into this process. `values` and `updates`
represent values between calls.
"""
