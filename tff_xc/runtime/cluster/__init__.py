"""Runs TFF computations on several machines, by Ray.

`context` is TFF's entry point. The server's steps run in this process. A
cohort's blocks of clients go to workers (`worker`), each of which is the
in-process runtime on its share; `dispatch` hands blocks out, joins the results
in their order, and repeats what a lost worker had. `cut` splits a client's
steps where it waits for rows. `ray_crew` makes workers of Ray's processes.

`nodes` starts and ends Ray's processes on this machine, `connection` connects
a driver to them, `state` keeps what was started. Ray is installed by `make
venv-cluster` only; no module here imports it when it is imported.
"""
