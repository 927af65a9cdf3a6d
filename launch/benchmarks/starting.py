"""Makes the commands of the contenders' processes from names and settings."""

import dataclasses
import json
import os
import pathlib
import sys
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from launch.benchmarks import contender as contender_lib
from launch.benchmarks import harness
from launch.benchmarks import spec
from tff_xc import errors

_PEERS = pathlib.Path(__file__).parent / 'peers'
# These variables would make another interpreter find this one's packages.
_OURS = ('PYTHONPATH', 'PYTHONHOME', 'VIRTUAL_ENV')


def peer_names() -> tuple[str, ...]:
  """The names that `--peers` takes: the programs in peers/."""
  return tuple(sorted(path.stem for path in _PEERS.glob('pfl_*.py')))


def parse_peers(given: Sequence[str]) -> dict[str, str]:
  """Parses NAME=INTERPRETER words.

  Raises:
    errors.InputError: a name is unknown, or an interpreter cannot be run.
  """
  peers = {}
  for word in given:
    name, _, interpreter = word.partition('=')
    if name not in peer_names():
      raise errors.InputError(
        f'--peers={word}: expected NAME=INTERPRETER, the names are '
        f'{", ".join(peer_names())}'
      )
    if not os.access(interpreter, os.X_OK) or os.path.isdir(interpreter):
      raise errors.InputError(
        f'--peers={word}: {interpreter or "nothing"} is no program that can be '
        'run; give the python of an environment that has pfl'
      )
    peers[name] = interpreter
  return peers


def check_names(
  benchmark: spec.Benchmark, settings: Any, names: Sequence[str]
) -> None:
  """Refuses contenders that the benchmark does not have, and repetitions.

  Raises:
    errors.InputError: a name is unknown or repeated; it lists the known names.
  """
  known = [*benchmark.contenders(settings), *benchmark.optional(settings)]
  for name in names:
    if name not in known:
      raise errors.InputError(
        f'unknown contender {name!r}: those of {benchmark.name} are '
        + ', '.join(known)
      )
  if not names or len(set(names)) < len(names):
    raise errors.InputError(
      f'--contenders={",".join(names)}: name each contender once'
    )


def our_contender(
  benchmark: spec.Benchmark, settings: Any, name: str, timeout_seconds: float
) -> harness.Runs:
  """Returns the handle of a contender of this package."""
  command = [
    *(sys.executable, '-m', 'launch.benchmarks.child', benchmark.name, name),
    json.dumps(dataclasses.asdict(settings)),
  ]
  environment = os.environ | {
    'PYTHONPATH': os.pathsep.join(path or os.getcwd() for path in sys.path)
  }
  make = lambda: contender_lib.Contender(
    name, command, environment, timeout_seconds
  )
  return contender_lib.FreshContender(make) if benchmark.fresh else make()


def peer_contenders(
  peers: Mapping[str, str], arrays_path: str, timeout_seconds: float
) -> dict[str, harness.Runs]:
  """Returns the handles of the peers, which read the arrays at the path."""
  environment = {k: v for k, v in os.environ.items() if k not in _OURS}
  return {
    name: contender_lib.Contender(
      name,
      [interpreter, str(_PEERS / f'{name}.py'), arrays_path],
      environment,
      timeout_seconds,
    )
    for name, interpreter in peers.items()
  }
