"""Workers on one or many machines, which Ray starts and reaches.

`nodes` starts and ends Ray's processes on this machine, `connection` connects
a driver to them. Ray is installed by `make venv-cluster` only; no module here
imports it when it is imported.
"""
