"""Runs TFF computations on several machines with Ray.

`context` is TFF's entry point. The server's steps run in this process, the driver. The
cohort is divided into blocks of clients. Each worker (`worker`) runs blocks with the
in-process runtime. `dispatch` assigns blocks to workers, joins the results in order, and
repeats the blocks of a lost worker. A client computes which rows it needs, and later gets
these rows. `cut` splits the client's steps into those that compute this request and those that
use the rows. `messages` defines the messages.

`crew` starts workers as Ray actors. `connection` connects the driver to the user's Ray cluster, or
starts Ray for one run. In the second case, `guard` ends Ray after the run. Only
`make venv-cluster` installs Ray, and no module of this package imports Ray at import time.
"""
