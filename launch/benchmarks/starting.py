"""Makes the commands of the contenders' processes from names and settings."""

import dataclasses
import json
import os
import pathlib
import sys
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import tff_xc
from launch.benchmarks import contender as contender_lib
from launch.benchmarks import harness
from launch.benchmarks import spec
from tff_xc import errors

_PEERS = pathlib.Path(__file__).parent / 'peers'
# These variables would make another interpreter find this one's packages.
_OURS = ('PYTHONPATH', 'PYTHONHOME', 'VIRTUAL_ENV')


def programs(benchmark: spec.Benchmark, settings: Any) -> list[str]:
  """Returns the names that `--peers` takes: programs in peers/."""
  named = map(spec.name_and_size, benchmark.peers(settings))
  return list(dict.fromkeys(program for program, _ in named))


def parse_peers(
  benchmark: spec.Benchmark, settings: Any, given: Sequence[str]
) -> dict[str, str]:
  """Parses NAME=INTERPRETER words.

  Raises:
    errors.InputError: the benchmark has no peer of a name, or an interpreter
      cannot be run.
  """
  known = programs(benchmark, settings)
  if given and not known:
    raise errors.InputError(f'{benchmark.name} has no peers; leave --peers out')
  peers = {}
  for word in given:
    name, _, interpreter = word.partition('=')
    if name not in known:
      raise errors.InputError(
        f'--peers={word}: expected NAME=INTERPRETER, the names of '
        f'{benchmark.name} are {", ".join(known)}'
      )
    interpreter = os.path.expanduser(interpreter)
    if not os.access(interpreter, os.X_OK) or os.path.isdir(interpreter):
      raise errors.InputError(
        f'--peers={word}: {interpreter or "nothing"} is no program that can be '
        f'run; give the python of an environment that has {name.split("_")[0]}'
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


def _given_environment() -> dict[str, str]:
  """Returns the environment without the setting that this package adds."""
  added = {tff_xc.ONEDNN} if tff_xc.ONEDNN_GIVEN is None else set()
  return {k: v for k, v in os.environ.items() if k not in added}


def our_contender(
  benchmark: spec.Benchmark, settings: Any, name: str, timeout_seconds: float
) -> harness.Runs:
  """Returns the handle of a contender of this package."""
  command = [
    *(sys.executable, '-m', 'launch.benchmarks.child', benchmark.name, name),
    json.dumps(dataclasses.asdict(settings)),
  ]
  environment = _given_environment() | {
    'PYTHONPATH': os.pathsep.join(path or os.getcwd() for path in sys.path)
  }
  make = lambda: contender_lib.Contender(
    name, command, environment, timeout_seconds
  )
  return contender_lib.FreshContender(make) if benchmark.fresh else make()


def peer_contenders(
  names: Sequence[str],
  interpreters: Mapping[str, str],
  arrays_path: str,
  timeout_seconds: float,
) -> dict[str, harness.Runs]:
  """Returns the handles of the peers whose programs have an interpreter.

  Args:
    names: PROGRAM or PROGRAM@SIZE.
    interpreters: by program.
    arrays_path: of the file that they read.
    timeout_seconds: the longest time for one answer.
  """
  given = _given_environment()
  environment = {k: v for k, v in given.items() if k not in _OURS}
  contenders = {}
  for name in names:
    program, size = spec.name_and_size(name)
    if program in interpreters:
      path = str(_PEERS / f'{program}.py')
      contenders[name] = contender_lib.Contender(
        name,
        [interpreters[program], path, arrays_path, size],
        environment,
        timeout_seconds,
      )
  return contenders
