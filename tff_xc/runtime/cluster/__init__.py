"""Runs TFF computations on several machines, by Ray.

`context` is TFF's entry point. The server's steps run in this process. A
cohort's blocks of clients go to workers (`worker`), each of which is the
in-process runtime on its blocks; `dispatch` hands blocks out, joins the results
in their order, and repeats what a lost worker had. `cut` splits a client's
steps where it waits for rows, and `messages` is what is sent.

`crew` makes workers of Ray's actors. `connection` connects a driver to the
user's Ray or starts Ray for a run, which `guard` ends. Ray is installed by `make
venv-cluster` only; no module here imports it when it is imported.
"""
