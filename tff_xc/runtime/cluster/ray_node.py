"""The process of one node: starts Ray's processes and ends with them.

`nodes` runs it as `python -m tff_xc.runtime.cluster.ray_node SETTINGS`. It does
what `ray start --block` does, with the difference that it can listen on
127.0.0.1 only (`ray start` replaces that address by the machine's address to
the outside) and starts no server for remote Ray clients.
"""

import json
import pathlib
import sys
import time


def main(params: dict, is_head: bool, ready: str) -> None:
  """Runs a node until one of its processes ends, or SIGTERM comes."""
  from ray._private import node as node_lib
  from ray._private import parameter

  node = node_lib.Node(
    parameter.RayParams(
      num_gpus=0,
      include_log_monitor=False,
      no_monitor=True,
      dashboard_agent_listen_port=0,
      **params,
    ),
    head=is_head,
    shutdown_at_exit=True,
    spawn_reaper=True,
  )
  if not is_head:
    node.check_version_info()
  new = pathlib.Path(ready).with_suffix('.new')
  new.write_text(node.node_id)
  new.replace(ready)
  while not (dead := node.dead_processes()):
    time.sleep(0.5)
  sys.exit(f'ended: {", ".join(str(kind) for kind, _ in dead)}')


if __name__ == '__main__':
  main(*json.loads(sys.argv[1]))
