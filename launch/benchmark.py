"""Measures the cost of a round, as time ratios from one interleaved run.

  python -m launch.benchmark NAME [--output=F.json] [--contenders=a,b] [sizes]

Every contender has its own process. In every pass each contender runs one round, in
shuffled order, and ratios are taken within a pass. A pass in which other processes used
the cores is dropped and repeated. Of a contender NAME@SIZE, one size is SIZE. Exit status:
0 done, 1 done with warnings (too few undisturbed passes, or a contender with different
results), 2 bad input. `python -m launch.list benchmarks` lists contenders and sizes.
"""

import datetime
import json
import os
import pathlib
import shutil
import sys
import tempfile

from absl import flags

from launch import app
from launch.benchmarks import classes, harness, rank, round as round_lib, select, start, svm
from tff_xc import environment, errors, files, wording

BENCHMARKS: dict[str, harness.Benchmark] = {
  module.BENCHMARK.name: module.BENCHMARK
  for module in (round_lib, classes, select, svm, rank, start)
}
_PEERS = pathlib.Path(harness.__file__).parent / 'peers'
_SIZES = sorted({size for found in BENCHMARKS.values() for size in found.sizes})


def given_sizes(benchmark: harness.Benchmark) -> dict:
  """Returns the sizes of a benchmark from the flags."""
  sizes = benchmark.sizes | (benchmark.small if flags.FLAGS.small else {})
  for name in _SIZES:
    words = flags.FLAGS[name].value
    if words is None:
      continue
    if name not in sizes:
      raise errors.InputError(
        f'--{name} is no size of {benchmark.name}, which has --{", --".join(sizes)}'
      )
    is_one = not isinstance(sizes[name], tuple)
    numbers = [int(n) for n in words if n.isdecimal() and int(n) > 0]
    if len(numbers) != len(words) or not words or (is_one and len(words) > 1):
      raise errors.InputError(
        f'--{name}={",".join(words)}: expected a positive number'
        + ('' if is_one else ', or several with commas')
      )
    sizes[name] = numbers[0] if is_one else tuple(numbers)
  return sizes


def given_contenders(benchmark: harness.Benchmark, sizes: dict) -> tuple[list[str], dict[str, str]]:
  """Returns the contenders from the flags, and the interpreters by peer."""
  names, interpreters = flags.FLAGS.contenders, {}
  if names is None:
    names = benchmark.contenders(sizes)
  known = benchmark.names + benchmark.optional
  unknown = [name for name in names if name.partition('@')[0] not in known]
  if unknown or not names or len({*names}) < len(names):
    raise errors.InputError(
      f'--contenders={",".join(names)}: name each once, of {", ".join(known)}'
    )
  for word in flags.FLAGS.peers:
    peer, _, interpreter = word.partition('=')
    if peer not in benchmark.peers or not shutil.which(interpreter):
      raise errors.InputError(
        f'--peers={word}: expected NAME=INTERPRETER, the python of an environment that'
        f' has the package; NAME is of {", ".join(benchmark.peers) or "another benchmark"}'
      )
    interpreters[peer] = interpreter
  return names, interpreters


def main(arguments: list[str]) -> None:
  """Runs the benchmark named on the command line."""
  if len(arguments) != 1 or arguments[0] not in BENCHMARKS:
    meant = ''.join(wording.meant(each, BENCHMARKS) for each in arguments)
    raise errors.InputError(f'name one benchmark of {", ".join(BENCHMARKS)}{meant}')
  found, output = BENCHMARKS[arguments[0]], flags.FLAGS.output
  sizes = given_sizes(found)
  names, interpreters = given_contenders(found, sizes)
  # Before minutes of work.
  if output and not pathlib.Path(output).resolve().parent.is_dir():
    raise errors.InputError(f'--output={output}: the folder does not exist; make it first')
  with tempfile.TemporaryDirectory(prefix='benchmark_') as folder:
    arrays = os.path.join(folder, 'arrays.npz')
    if interpreters:
      found.write_arrays(sizes, arrays)
    words = {
      name: [sys.executable, '-m', 'launch.benchmarks', found.name, name, json.dumps(sizes)]
      for name in names
    }
    for name, interpreter in interpreters.items():
      # With its own packages, whatever PYTHONPATH is.
      words[name] = [interpreter, '-E', str(_PEERS / f'{name}.py'), arrays]
    timeout = flags.FLAGS.timeout_seconds
    contenders = {name: harness.Contender(name, words[name], timeout) for name in words}
    report = harness.measure(found, contenders, flags.FLAGS.passes, flags.FLAGS.max_foreign)
  # Without files and interpreters, which differ.
  given = [flags.FLAGS[name] for name in flags.FLAGS if name not in ('output', 'peers')]
  words = [flag.serialize() for flag in given if flag.present]
  if interpreters:
    peers = ','.join(f'{name}=PYTHON' for name in interpreters)
    words.append(f'--peers={peers}')
  report |= environment.describe() | {
    'settings': sizes,
    'command': ' '.join(['launch.benchmark', found.name, *words]),
    'date': datetime.date.today().isoformat(),
  }
  print('\n' + harness.to_markdown(report), end='')
  if output:
    with files.writing(f'--output={output}', 'the results above are all'):
      files.write_json(output, report, is_sorted=False)
    print(f'\nwritten to {output}')
  if report['warnings']:
    sys.exit(1)


def _define_flags() -> None:
  peers = [peer for benchmark in BENCHMARKS.values() for peer in benchmark.peers]
  flags.DEFINE_string('output', None, 'a JSON file to write')
  flags.DEFINE_list('contenders', None, "contenders to run; default: the benchmark's")
  flags.DEFINE_list(
    'peers',
    [],
    'further contenders NAME=INTERPRETER, the python of an environment with the package;'
    f' NAME is of {", ".join(peers)}',
  )
  flags.DEFINE_integer('passes', 9, 'undisturbed passes', lower_bound=1)
  flags.DEFINE_bool('small', False, 'tiny sizes, to try a benchmark in seconds')
  app.define_float(
    'max_foreign', 0.15, "the part of a pass's core time that others may use", least=0.0, most=1e6
  )
  app.define_float(
    'timeout_seconds',
    1800.0,
    'longest time for building a contender, and for one round',
    least=0.1,
    most=86_400.0,
  )
  for name in _SIZES:
    having = [found.name for found in BENCHMARKS.values() if name in found.sizes]
    flags.DEFINE_list(name, None, f'a size of {", ".join(having)}')


if __name__ == '__main__':
  # Not at import, since other commands have flags of these names.
  _define_flags()
  width = max(map(len, BENCHMARKS))
  told = [f'  {name:{width}}  {found.summary}' for name, found in BENCHMARKS.items()]
  app.run(main, '\n'.join([__doc__, 'NAME is one of', *told, '']))
