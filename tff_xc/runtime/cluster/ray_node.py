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


def main(settings: dict) -> None:
  """Runs a node until one of its processes ends, or SIGTERM comes."""
  from ray._private import node as node_lib
  from ray._private import parameter

  is_head = 'port' in settings
  more = (
    {
      'gcs_server_port': settings['port'],
      'temp_dir': settings['ray_folder'],
      'include_dashboard': False,
    }
    if is_head
    else {'gcs_address': settings['address']}
  )
  # The actors that serve as workers are the only users of CPUs.
  node = node_lib.Node(
    parameter.RayParams(
      node_name=settings['name'],
      node_ip_address=settings['ip'],
      num_cpus=settings['workers'],
      num_gpus=0,
      resources={settings['resource']: settings['workers']}
      if settings['workers']
      else {},
      include_log_monitor=False,
      no_monitor=True,
      dashboard_agent_listen_port=0,
      **more,
    ),
    head=is_head,
    shutdown_at_exit=True,
    spawn_reaper=True,
  )
  if not is_head:
    node.check_version_info()
  ready = pathlib.Path(settings['ready'])
  ready.with_suffix('.new').write_text(node.node_id)
  ready.with_suffix('.new').replace(ready)
  while not (dead := node.dead_processes()):
    time.sleep(0.5)
  sys.exit(f'ended: {", ".join(str(kind) for kind, _ in dead)}')


if __name__ == '__main__':
  main(json.loads(sys.argv[1]))
