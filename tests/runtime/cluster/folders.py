"""Clusters and nodes on paper, for tests without Ray."""

import contextlib
import json
import resource
import sys
import time

from tff_xc.runtime.cluster import state

RAY_FOLDER = '/tmp/tff_xc_00000000'  # No test makes it.

# Stands for a node: makes a process in a session of its own, and is ready.
NODE = """
import pathlib, signal, subprocess, sys, time
program = 'import signal, time; %s; time.sleep(600)'
subprocess.Popen([sys.executable, '-c', program], start_new_session=True)
pathlib.Path(sys.argv[1]).write_text('a1')
time.sleep(600)
"""
IGNORES = 'signal.signal(signal.SIGTERM, signal.SIG_IGN)'


def cluster(address='127.0.0.1:1', **more):
  return state.Cluster(address, 'a' * 64, RAY_FOLDER, **more)


def node(name='1', mark='m', **more):
  values = {'workers': 1, 'threads': 2, 'data_dir': '', 'ip': '127.0.0.1'}
  return state.Node(
    **{'name': name, 'mark': mark, 'is_head': True} | values | more
  )


def write_strangers(folder):
  """Fills a folder with somebody's files, named as a cluster's; returns all."""
  (folder / 'nodes').mkdir(parents=True)
  names = ['key.pem', 'certificate.pem', 'token', 'driver.log', 'nodes/1.log']
  for name in [*names, 'join.json', 'nodes/1.json']:
    (folder / name).write_text(f'my {name}')
  folder.chmod(0o755)
  return everything(folder)


def everything(folder):
  """Returns the contents of all files below a folder, and all modes."""
  return {
    p: (p.stat().st_mode, p.is_file() and p.read_bytes())
    for p in [folder, *folder.rglob('*')]
  }


def write_join(path, **changes):
  """Writes a file join.json with some values changed."""
  state.make_folder(path.parent)
  state.write_cluster(path.parent, cluster())
  values = json.loads((path.parent / state.JOIN).read_text())
  path.write_text(json.dumps({**values, **changes}))


@contextlib.contextmanager
def no_room():
  """Lets no file of this process grow, as `ulimit -f 0` and a full disk do."""
  before = resource.getrlimit(resource.RLIMIT_FSIZE)
  resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
  try:
    yield
  finally:
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def command(script):
  """Returns what runs a script in place of a node, for `nodes._command`."""
  return lambda _, node, ready: [sys.executable, '-c', script, str(ready)]


def wait(is_it, seconds=10.0):
  deadline = time.monotonic() + seconds
  while not is_it() and time.monotonic() < deadline:
    time.sleep(0.05)
  return is_it()
