"""Runs TFF computations on several machines with Ray.

`context` is TFF's entry point. The server's steps run in this process, the driver. The
cohort is divided into blocks of clients. Each worker (`worker`) runs blocks with the
in-process runtime. `dispatch` assigns blocks to workers, joins the results in order, and
repeats the blocks of a lost worker. `cut` splits a client's steps where the client waits
for rows. `messages` defines the messages.

`crew` starts workers as Ray actors. `connection` connects the driver to the user's Ray or
starts Ray for a run, which `guard` ends. Only `make venv-cluster` installs Ray, and no
module here imports Ray at import time.
"""
