"""Measures the cost of a round, as time ratios from one interleaved run.

  python -m launch.benchmark NAME [--output=F.json] [--contenders=a,b] [sizes]

Every contender has its own process. In every pass each contender runs one
round, in shuffled order, and ratios are taken within a pass. A pass in which
other processes used the cores is dropped and repeated. Exit status: 0 done, 1
done with warnings (too few undisturbed passes, or a contender with different
results), 2 bad input.
"""

import dataclasses
import datetime
import os
import pathlib
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

from absl import flags

import tff_xc
from launch import app
from launch.benchmarks import catalog
from launch.benchmarks import harness
from launch.benchmarks import report
from launch.benchmarks import spec
from launch.benchmarks import starting
from tff_xc import environment
from tff_xc import errors
from tff_xc.algorithms import hyperparameters as hp
from tff_xc.report import run_files

# oneDNN and MKL read these when they start.
_LIMITS = ('ONEDNN_MAX_CPU_ISA', 'MKL_ENABLE_INSTRUCTIONS')


def _size_fields() -> dict[str, list[str]]:
  """Returns the names of the benchmarks that have a size, by size."""
  fields: dict[str, list[str]] = {}
  for benchmark in catalog.BENCHMARKS.values():
    for field in dataclasses.fields(benchmark.settings):
      fields.setdefault(field.name, []).append(benchmark.name)
  return fields


def resolve_settings(benchmark: spec.Benchmark) -> Any:
  """Returns the sizes of a benchmark from the flags.

  Raises:
    errors.InputError: the benchmark does not have a given size, or a size is no
      number from 1 to 2³¹ - 1.
  """
  own = {f.name: f.default for f in dataclasses.fields(benchmark.settings)}
  values = dict(benchmark.small) if flags.FLAGS.small else {}
  for name in _size_fields():
    words = flags.FLAGS[name].value
    if words is None:
      continue
    if name not in own:
      raise errors.InputError(
        f'--{name} is not a size of {benchmark.name}, which takes: '
        + ', '.join(f'--{n}' for n in own)
      )
    many = isinstance(own[name], tuple)
    values[name] = _numbers(name, words, many)
  return benchmark.settings(**values)


def _numbers(name: str, words: Sequence[str], many: bool):
  bounds = f'from 1 to {hp.INT32_MAX}'
  expected = (
    f'numbers {bounds}, separated by commas' if many else f'a number {bounds}'
  )
  try:
    numbers = tuple(int(word) for word in words if word)
  except ValueError:
    numbers = (0,)
  if any(not 1 <= n <= hp.INT32_MAX for n in numbers) or (
    not many and len(numbers) != 1
  ):
    raise errors.InputError(f'--{name}={",".join(words)}: expected {expected}')
  return numbers if many else numbers[0]


def benchmark(
  found: spec.Benchmark,
  settings: Any,
  names: Sequence[str],
  peers: Sequence[str],
  plan: harness.Plan,
  timeout_seconds: float,
) -> dict[str, Any]:
  """Measures the contenders and returns the report.

  Args:
    found: the benchmark.
    settings: its sizes.
    names: contenders of this package.
    peers: NAME=INTERPRETER words.
    plan: the plan of the measurement.
    timeout_seconds: the longest time for building, and for one round.

  Raises:
    errors.InputError: a name is unknown, a contender fails, or the machine is
      never free.
  """
  starting.check_names(found, settings, names)
  interpreters = starting.parse_peers(found, settings, peers)
  contenders = {
    name: starting.our_contender(found, settings, name, timeout_seconds)
    for name in names
  }
  with tempfile.TemporaryDirectory(prefix='benchmark_') as folder:
    if interpreters:
      path = os.path.join(folder, 'arrays.npz')
      found.write_arrays(settings, path)
      contenders |= starting.peer_contenders(
        found.peers(settings), interpreters, path, timeout_seconds
      )
    measured = harness.measure(
      contenders, plan, say=lambda text: print(text, flush=True)
    )
  result = report.build(found, settings, measured, plan)
  return result | environment.describe()


def command(name: str, values: flags.FlagValues) -> str:
  """Returns the command line without files and interpreters, which differ.

  Variables that limit the processor's instructions stand in front of it.
  """
  given = {tff_xc.ONEDNN: tff_xc.ONEDNN_GIVEN}
  given |= {limit: os.environ.get(limit) for limit in _LIMITS}
  words = [f'{key}={value}' for key, value in given.items() if value]
  words += ['launch.benchmark', name]
  for flag in {values[name].name: values[name] for name in values}.values():
    if flag.name == 'peers' and flag.value:
      peers = ','.join(
        word.partition('=')[0] + '=PYTHON' for word in flag.value
      )
      words.append(f'--peers={peers}')
    elif flag.present and flag.name != 'output':
      words.append(flag.serialize())
  return ' '.join(words)


def _check_output(path: str | None) -> None:
  """Refuses a file that cannot be written, before minutes of work."""
  if path and not pathlib.Path(path).resolve().parent.is_dir():
    raise errors.InputError(
      f'--output={path}: the folder does not exist; make it first'
    )
  if path and os.path.exists(path) and not os.path.isfile(path):
    raise errors.InputError(f'--output={path} is no regular file; name another')


def main(arguments: Sequence[str]) -> None:
  """Runs the benchmark named on the command line."""
  if len(arguments) != 1:
    raise errors.InputError(
      'name one benchmark: ' + ', '.join(catalog.BENCHMARKS)
    )
  found = catalog.get(arguments[0])
  settings = resolve_settings(found)
  values = flags.FLAGS
  names = values.contenders
  _check_output(values.output)
  result = benchmark(
    found,
    settings,
    found.contenders(settings) if names is None else names,
    values.peers,
    harness.Plan(
      found.passes if values.passes is None else values.passes,
      found.warm_up if values.warm_up is None else values.warm_up,
      values.max_foreign,
      values.seed,
    ),
    values.timeout_seconds,
  )
  result |= {
    'command': command(found.name, values),
    'date': datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
  }
  print('\n' + report.to_text(result), end='')
  if values.output:
    try:
      run_files.write_json(values.output, result, is_sorted=False)
    except OSError as e:
      raise errors.InputError(
        f'--output={values.output} cannot be written ({e.strerror})'
      ) from e
    print(f'\nwritten to {values.output}')
  for warning in result['warnings']:
    print(f'warning: {warning}', file=sys.stderr)
  if result['warnings']:
    sys.exit(1)


def _usage() -> str:
  """Returns the text of `--help` above the flags: the benchmarks by name."""
  width = max(map(len, catalog.BENCHMARKS))
  lines = [
    f'  {name:{width}}  {found.summary}'
    for name, found in catalog.BENCHMARKS.items()
  ]
  return '\n'.join([__doc__, 'NAME is one of', *lines, ''])


def _peer_names() -> str:
  """Returns the peers of each benchmark that has some."""
  peers = {
    name: starting.programs(found, found.settings())
    for name, found in catalog.BENCHMARKS.items()
  }
  return '; '.join(
    f'{name}: {", ".join(programs)}'
    for name, programs in peers.items()
    if programs
  )


def _define_flags() -> None:
  flags.DEFINE_string('output', None, 'a JSON file to write')
  flags.DEFINE_list(
    'contenders', None, "contenders to run; default: the benchmark's"
  )
  flags.DEFINE_list(
    'peers',
    [],
    'further contenders NAME=INTERPRETER, the python of an environment with the '
    'package; the names are ' + _peer_names(),
  )
  flags.DEFINE_integer(
    'passes',
    None,
    "number of undisturbed passes; default: the benchmark's, 9 or 1",
    lower_bound=1,
    upper_bound=hp.INT32_MAX,
  )
  flags.DEFINE_integer(
    'warm_up',
    None,
    "rounds of each contender before the passes; default: the benchmark's",
    lower_bound=0,
    upper_bound=hp.INT32_MAX,
  )
  app.define_float(
    'max_foreign',
    0.15,
    "the part of a pass's core time that others may use",
    least=0.0,
    most=1e6,
  )
  flags.DEFINE_integer(
    'seed',
    0,
    "seed of the contenders' order",
    lower_bound=0,
    upper_bound=hp.INT32_MAX,
  )
  flags.DEFINE_bool('small', False, 'tiny sizes, to try a benchmark in seconds')
  app.define_float(
    'timeout_seconds',
    1800.0,
    'longest time for building a contender, and for one round',
    least=0.1,
    most=86_400.0,
  )
  for name, benchmarks in _size_fields().items():
    flags.DEFINE_list(name, None, f'a size of {", ".join(benchmarks)}')


if __name__ == '__main__':
  # Not at import, since other commands have flags of these names.
  _define_flags()
  app.run(main, _usage())
