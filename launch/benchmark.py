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
from launch.benchmarks import process
from launch.benchmarks import report
from launch.benchmarks import spec
from tff_xc import environment
from tff_xc import errors
from tff_xc import files
from tff_xc import precision
from tff_xc.algorithms import hyperparameters as hp

# oneDNN and MKL read the first two when they start.
_LIMITS = (
  *('ONEDNN_MAX_CPU_ISA', 'MKL_ENABLE_INSTRUCTIONS'),
  precision.EMULATED,
)


def _size_fields() -> dict[str, list[str]]:
  """Returns the names of the benchmarks that have a size, by size."""
  fields: dict[str, list[str]] = {}
  for benchmark in catalog.BENCHMARKS.values():
    for field in dataclasses.fields(benchmark.settings):
      fields.setdefault(field.name, []).append(benchmark.name)
  return fields


def resolve_settings(benchmark: spec.Benchmark) -> Any:
  """Returns the sizes of a benchmark from the flags."""
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
    numbers = [int(word) if word.isdecimal() else 0 for word in words if word]
    if (
      any(not 1 <= n <= hp.INT32_MAX for n in numbers)
      or not 1 <= len(set(numbers)) == len(numbers)
      or not (many or len(numbers) == 1)
    ):
      bounds = f'from 1 to {hp.INT32_MAX}'
      raise errors.InputError(
        f'--{name}={",".join(words)}: expected '
        + (
          f'numbers {bounds}, each once, with commas'
          if many
          else f'a number {bounds}'
        )
      )
    values[name] = tuple(numbers) if many else numbers[0]
  return benchmark.settings(**values)


def benchmark(
  found: spec.Benchmark,
  settings: Any,
  names: Sequence[str],
  peers: Sequence[str],
  plan: harness.Plan,
  timeout_seconds: float,
) -> dict[str, Any]:
  """Measures contenders and NAME=INTERPRETER peers; returns the report."""
  process.check_names(found, settings, names)
  interpreters = process.parse_peers(found, settings, peers)
  contenders = {
    name: process.our_contender(found, settings, name, timeout_seconds)
    for name in names
  }
  with tempfile.TemporaryDirectory(prefix='benchmark_') as folder:
    if interpreters:
      path = os.path.join(folder, 'arrays.npz')
      found.write_arrays(settings, path)
      contenders |= process.peer_contenders(
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


def main(arguments: Sequence[str]) -> None:
  """Runs the benchmark named on the command line."""
  if len(arguments) != 1:
    raise errors.InputError(
      'name one benchmark: ' + ', '.join(catalog.BENCHMARKS)
    )
  found = catalog.get(arguments[0])
  settings = resolve_settings(found)
  values = flags.FLAGS
  names, output = values.contenders, values.output
  # Before minutes of work.
  if output and not pathlib.Path(output).resolve().parent.is_dir():
    raise errors.InputError(
      f'--output={output}: the folder does not exist; make it first'
    )
  if output and os.path.exists(output) and not os.path.isfile(output):
    raise errors.InputError(
      f'--output={output} is no regular file; name another'
    )
  picture = None
  if output and found.draw:
    picture = pathlib.Path(output).with_suffix('.png')
    # What lies beside a report is its picture, of an earlier time.
    if picture == pathlib.Path(output) or (
      picture.exists() and not os.path.exists(output)
    ):
      raise errors.InputError(
        f'--output={output}: the picture would replace {picture}; name a .json '
        'file elsewhere'
      )
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
  if output:
    with files.writing(f'--output={output}', 'the results above are all'):
      files.write_json(output, result, is_sorted=False)
      if picture:
        found.draw(result, picture)
    print(f'\nwritten to {output}' + (f' and {picture}' if picture else ''))
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


def _define_flags() -> None:
  peers = {
    name: process.programs(found, found.settings())
    for name, found in catalog.BENCHMARKS.items()
  }
  flags.DEFINE_string('output', None, 'a JSON file to write')
  flags.DEFINE_list(
    'contenders', None, "contenders to run; default: the benchmark's"
  )
  flags.DEFINE_list(
    'peers',
    [],
    'further contenders NAME=INTERPRETER, the python of an environment with the '
    'package; the names are '
    + '; '.join(f'{n}: {", ".join(own)}' for n, own in peers.items() if own),
  )
  for name, default, least, text in (
    ('passes', None, 1, "undisturbed passes; default: the benchmark's, 9 or 1"),
    ('warm_up', None, 0, "rounds before the passes; default: the benchmark's"),
    ('seed', 0, 0, "seed of the contenders' order"),
  ):
    flags.DEFINE_integer(
      name, default, text, lower_bound=least, upper_bound=hp.INT32_MAX
    )
  app.define_float(
    'max_foreign',
    0.15,
    "the part of a pass's core time that others may use",
    least=0.0,
    most=1e6,
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
