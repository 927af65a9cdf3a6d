"""Compares the running times of several programs (contenders) that do the same work.

  python -m launch.benchmark NAME [--output=F.json] [--contenders=a,b] [sizes]

Every contender has its own process. In each pass, every contender runs one round, in a random
order. The benchmark divides the times of two contenders within the same pass, and prints the
median ratio over all passes. If other programs used the cores during a pass, the benchmark
drops this pass and runs another one. If a benchmark compares several sizes, CONTENDER@SIZE is
a contender at one of these sizes.

Exit status: 0 done; 1 done with warnings, because too few passes were undisturbed or a
contender computed different results; 2 bad input. `python -m launch.list benchmarks` lists
contenders and sizes.
"""

import contextlib
import dataclasses
import datetime
import importlib
import json
import os
import pathlib
import random
import re
import select
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence

import psutil
from absl import flags

import tff_xc
from launch import app, machine
from launch.benchmarks.peers import protocol
from tff_xc import environment, errors, files, wording
from tff_xc.report import text_table

_TAIL_CHARACTERS = 1500
_GRACE_SECONDS = 5.0
_WARM_UP = 2  # The number of rounds of each contender before the first pass.
# The benchmark tries at most this many passes for each undisturbed pass that it needs.
_ATTEMPTS = 3


@dataclasses.dataclass(frozen=True, kw_only=True)
class Benchmark:
  """A benchmark. The module `launch.benchmarks.BENCHMARK` builds its contenders.

  The module's `build(contender, sizes)` returns a function for `protocol.serve`. `sizes` has
  the sizes as attributes. A contender is called NAME or NAME@SIZE.
  """

  name: str  # The name BENCHMARK of the module, also used on the command line.
  summary: str  # A description in one line.
  sizes: dict[str, int | tuple[int, ...]]  # The flags that set sizes, with their defaults.
  # The sizes of --small, with which a benchmark takes seconds.
  small: dict[str, int | tuple[int, ...]]
  names: tuple[str, ...]  # The NAMEs of the contenders that run by default.
  # Pairs of NAMEs. At each size, the time of the first is divided by the time of the second.
  ratios: tuple[tuple[str, str], ...]
  # NAMEs whose results must equal those of the first NAME, at each size.
  same: tuple[str, ...]
  tolerances: dict[str, float]  # The relative tolerance of each result, by name.
  optional: tuple[str, ...] = ()  # NAMEs that run only if the user names them.
  by: str = ''  # The flag that lists the SIZEs.
  # Contenders that are programs peers/NAME.py. The function `write_arrays` of the benchmark's
  # module writes their data.
  peers: tuple[str, ...] = ()
  fresh: bool = False  # Whether every round starts a new process.

  def contenders(self, names: Sequence[str], sizes: dict) -> list[str]:
    """Returns the contenders NAME or NAME@SIZE. A NAME without SIZE runs at all sizes."""
    if not self.by:
      return list(names)
    without_size = [name for name in names if '@' not in name]
    found = [f'{name}@{size}' for size in sizes[self.by] for name in without_size]
    return found + [name for name in names if '@' in name]

  def pairs(self, contenders: list[str]) -> list[tuple[str, str]]:
    """Returns pairs of contenders; the time of the first is divided by the time of the second.

    The second contender has either a different NAME at the same size, or the same NAME at the
    first size.
    """
    found, first = [], {}
    split = {each: each.partition('@')[::2] for each in contenders}
    for above, (name, size) in split.items():
      for below, (other, its_size) in split.items():
        if (name, other) in self.ratios and size == its_size:
          found.append((above, below))
      if first.setdefault(name, above) != above:
        found.append((above, first[name]))
    return found

  def disagreeing(self, check: dict[str, dict[str, float]]) -> dict[str, str]:
    """Returns a sentence for each contender that computed wrong results in its first round."""
    wrong, first = {}, {}
    for contender, found in check.items():
      name, _, size = contender.partition('@')
      base = first.setdefault(size, contender) if name in self.same + self.peers else contender
      for key, tolerance in self.tolerances.items():
        value, wanted = found.get(key, 0.0), check[base].get(key, 0.0)
        # `not <=` instead of `>`, so that a nan disagrees.
        if not abs(value - wanted) <= tolerance * abs(wanted):
          wrong[contender] = (
            f'{contender} does not compute what {base} does: {key} {value:.6g} instead'
            f' of {wanted:.6g} after one round'
          )
    return wrong


_OURS = ('in_process', 'worker', 'cluster', 'bfloat16')
_TFF = ('tff_fedavg', 'tff_fedavg_worker')
_PEERS = ('pfl_torch', 'torch_side_by_side', 'torch_bfloat16')
_ALL = (
  Benchmark(
    name='round',
    summary='a round of FEMNIST CNN training, 6.6 M parameters',
    sizes={
      'clients': 8,  # Clients in a round.
      'examples': 227,  # Images of each client.
      'batch_size': 64,  # Batch size of local training, which has one epoch.
      'embedding_dim': 2048,  # Width of the dense layer, 2,048 in LEAF.
    },
    small={'clients': 2, 'examples': 20, 'batch_size': 8, 'embedding_dim': 32},
    names=('plain', 'in_process', 'worker', *_TFF),
    optional=('cluster', 'bfloat16'),
    ratios=(
      *((name, 'plain') for name in (*_OURS, *_TFF, *_PEERS)),
      *((name, 'in_process') for name in _OURS[1:]),
      *(('in_process', name) for name in (*_TFF, *_PEERS)),
      ('tff_fedavg_worker', 'tff_fedavg'),
      *(('bfloat16', name) for name in _PEERS),
      ('torch_bfloat16', 'torch_side_by_side'),
    ),
    same=('plain', *_OURS, *_TFF),
    # Results differ slightly, because every contender trains on the examples in a different order.
    tolerances={'loss': 0.05, 'update_norm': 0.15},
    peers=_PEERS,
  ),
  Benchmark(
    name='classes',
    summary='FedSS, 32 clients with 100 rows each, n = 10,000 to 1,000,000',
    sizes={
      'clients': 32,  # Clients in a round.
      'examples': 20,  # Images of each client, which belong to 20 classes in turn.
      'batch_size': 32,  # Batch size of local training, which has one epoch.
      'embedding_dim': 64,  # The length of a class row.
      # Numbers of classes n. A message of TFF's worker has at most 2 GB, so 10^7 do not fit.
      'num_classes': (10_000, 100_000, 1_000_000),
    },
    small={'clients': 2, 'num_classes': (200, 400)},
    by='num_classes',
    names=('in_process', 'worker', 'dp'),
    ratios=(('worker', 'in_process'), ('dp', 'in_process')),
    same=('in_process', 'worker'),
    tolerances={'loss': 1e-3, 'class_rows': 1e-6},
  ),
  Benchmark(
    name='select',
    summary='federated_select of 1,000 rows for 64 clients, 1,000,000 x 64 table',
    sizes={
      'clients': 64,  # Clients in a round.
      'keys': 1000,  # Number of rows that each client requests.
      'rows': 1_000_000,  # Number of rows of the table.
      'dim': 64,  # The length of a row of the table.
    },
    small={'clients': 2, 'keys': 5, 'rows': 100, 'dim': 4},
    names=('floor', 'in_process', 'worker'),
    ratios=(('in_process', 'floor'), ('worker', 'floor'), ('worker', 'in_process')),
    same=('floor', 'in_process', 'worker'),
    tolerances={'sum_norm': 1e-3},
  ),
  Benchmark(
    name='svm',
    summary="TurboSVM-FL's server step, 62 classes of 2,048 from 8 clients",
    sizes={
      'classes': (62,),  # Numbers of classes n. With more than 2,028, scikit-learn needs gigabytes.
      'clients': 8,  # Clients in a round.
      'dim': 2048,  # The length of an embedding. A class row also has a bias.
    },
    small={'classes': (5,), 'clients': 4, 'dim': 6},
    by='classes',
    names=('product', 'ours', 'sklearn'),
    ratios=(('ours', 'product'), ('sklearn', 'ours')),
    same=('ours', 'sklearn'),
    tolerances={'support_vectors': 0.005, 'pair_similarity': 1e-3},
  ),
  Benchmark(
    name='rank',
    summary='exact P@k of 1,024 examples over 670,091 classes, rows of 512',
    sizes={
      'examples': 1024,  # Test examples: generated bags of words, with label sets.
      'num_classes': 670_091,  # The number of classes n.
      'dim': 512,  # The length of a class row.
    },
    small={'examples': 4, 'num_classes': 50, 'dim': 4},
    names=('product', 'exact'),
    ratios=(('exact', 'product'),),
    same=('product', 'exact'),
    tolerances={'best': 1e-4},
  ),
  Benchmark(
    name='start',
    summary='process start to the end of the first round, and its parts',
    sizes={
      'clients': 16,  # Clients in a round of FedSS with n = 200.
      'examples': 20,  # Images of a client.
      'batch_size': 32,  # Batch size of local training, which has one epoch.
      'embedding_dim': 64,  # The length of a class row.
    },
    small={'clients': 2},
    names=('in_process', 'worker'),
    ratios=(('worker', 'in_process'),),
    same=('in_process', 'worker'),
    tolerances={'loss': 1e-3},
    fresh=True,
  ),
)
BENCHMARKS = {benchmark.name: benchmark for benchmark in _ALL}
_FOLDER = pathlib.Path(__file__).parent / 'benchmarks' / 'peers'
_SIZES = sorted({size for found in BENCHMARKS.values() for size in found.sizes})


class Contender:
  """The process of a contender. It runs one round for each line on its standard input."""

  def __init__(self, name: str, command: list[str], timeout_seconds: float):
    """Keeps the arguments; `start` starts the process."""
    self.name, self._process = name, None
    self._command, self._timeout = command, timeout_seconds

  def start(self) -> None:
    """Starts the process, and waits until it has built the contender."""
    self._log = tempfile.TemporaryFile('w+', errors='replace')  # noqa: SIM115
    paths = os.pathsep.join(path or os.getcwd() for path in sys.path)
    more = {'PYTHONPATH': paths, protocol.STARTED: repr(time.monotonic())}
    self._process = subprocess.Popen(
      self._command,
      stdin=subprocess.PIPE,
      stdout=subprocess.PIPE,
      stderr=self._log,
      start_new_session=True,  # Only the parent handles Ctrl-C.
      env=given_environment() | more,
    )
    self._answer('while starting')

  def round(self) -> dict:
    """Runs a round; returns the entries of `protocol.serve`, and the peak memory in bytes."""
    with contextlib.suppress(BrokenPipeError):  # `_answer` reports the cause.
      self._process.stdin.write(b'round\n')
      self._process.stdin.flush()
    answer = self._answer('during a round')
    return answer | {'peak_bytes': machine.peak_bytes(self._process.pid)}

  def end(self) -> None:
    """Ends the process, if there is one."""
    process, self._process = self._process, None
    if process is None:
      return
    try:
      # The process ends when `communicate` closes its input.
      process.communicate(timeout=_GRACE_SECONDS)
    except subprocess.TimeoutExpired:
      os.killpg(process.pid, signal.SIGKILL)
      process.communicate()

  def _answer(self, when: str) -> dict:
    # Each answer is one line. The process writes nothing else before the next round.
    ready, _, _ = select.select([self._process.stdout], [], [], self._timeout)
    line = self._process.stdout.readline() if ready else b''
    answer = json.loads(line or '{}')
    if line and 'error' not in answer:
      return answer
    problem = f'did not answer within {self._timeout:g} seconds'
    if line:
      problem = f'failed ({answer["error"]})'
    elif ready:
      problem = f'ended with exit status {self._process.wait()}'
    self._log.seek(0)
    words = self._log.read()[-_TAIL_CHARACTERS:].strip()
    told = f'; its last words:\n{words}' if words else ''
    raise errors.InputError(f'contender {self.name} {problem} {when}{told}')


def given_environment() -> dict[str, str]:
  """Returns the environment variables, without the variable that `tff_xc` sets by itself."""
  added = {tff_xc.ONEDNN} if tff_xc.ONEDNN_GIVEN is None else set()
  return {k: v for k, v in os.environ.items() if k not in added}


def cpu_seconds() -> tuple[float, float]:
  """Returns the busy seconds of all cores, and the CPU seconds of this process and its children.

  The time that a hypervisor gave to other guests (steal) counts as busy.
  """
  now, us, own = psutil.cpu_times(), psutil.Process(), 0.0
  for process in [us, *us.children(recursive=True)]:
    with contextlib.suppress(psutil.NoSuchProcess):
      used = process.cpu_times()
      own += used.user + used.system + used.children_user + used.children_system
  return (now.user + now.nice + now.system + now.irq + now.softirq + now.steal, own)


def measure(
  benchmark: Benchmark, contenders: dict[str, Contender], passes: int, max_foreign: float
) -> dict:
  """Starts the contenders, runs the passes, and ends them; returns the report."""
  early: list[dict[str, dict]] = []
  try:
    if not benchmark.fresh:
      for name, contender in contenders.items():
        print(f'{name}: starting', flush=True)
        contender.start()
      for _ in range(_WARM_UP):
        early.append({name: each.round() for name, each in contenders.items()})
    kept, dropped = _passes(contenders, passes, max_foreign, benchmark.fresh)
  finally:
    for contender in contenders.values():
      contender.end()
  report = _report(benchmark, early + kept + dropped, kept)
  if len(kept) < passes:
    report['warnings'].append(
      f'only {len(kept)} of the {passes} passes asked for were undisturbed; repeat the'
      ' benchmark on an idle machine'
    )
  return report | {'passes': len(kept), 'dropped': len(dropped)}


def _passes(contenders, passes, max_foreign, fresh):
  """Runs passes; returns the undisturbed passes and the disturbed passes.

  A pass is a dictionary that has the reply of each contender.
  """
  order, shuffle = list(contenders), random.Random(0).shuffle
  kept, dropped = [], []
  while len(kept) < passes and len(kept) + len(dropped) < _ATTEMPTS * passes:
    shuffle(order)
    started, (busy, own) = time.monotonic(), cpu_seconds()
    replies = {}
    for name in order:
      if fresh:
        contenders[name].start()
      replies[name] = contenders[name].round()
      if fresh:
        contenders[name].end()
    core_seconds = os.cpu_count() * (time.monotonic() - started)
    busy_now, own_now = cpu_seconds()
    foreign = (busy_now - busy - (own_now - own)) / core_seconds
    (dropped if foreign > max_foreign else kept).append(replies)
    told = ', '.join(f'{name} {replies[name]["seconds"]:.3g} s' for name in contenders)
    print(f'{told}; others used {foreign:.0%} of the core time', flush=True)
  if not kept:
    raise errors.InputError(
      f'every pass was disturbed: others used more than {max_foreign:.0%} of the core'
      ' time; free the machine, or allow more with --max_foreign'
    )
  return kept, dropped


def _report(benchmark, rounds, kept) -> dict:
  """Returns the measurements in a form that JSON can store.

  Warnings name the contenders with wrong results. Ratios leave them out. A value of `ratios` is
  the median over passes of the ratio within a pass. A value of `peak_mb` is the maximum over
  all rounds of the sum of the peak resident sizes of a contender's processes.
  """
  check = {name: reply['check'] for name, reply in rounds[0].items()}
  wrong = benchmark.disagreeing(check)
  right = [name for name in check if name not in wrong]
  median, ratios, ranges = statistics.median, {}, {}
  for above, below in benchmark.pairs(right):
    found = [replies[above]['seconds'] / replies[below]['seconds'] for replies in kept]
    ratios[f'{above}/{below}'] = median(found)
    ranges[f'{above}/{below}'] = [min(found), max(found)]
  seconds, peaks, parts = {}, {}, {}
  for name in right:
    seconds[name] = median(replies[name]['seconds'] for replies in kept)
    peaks[name] = max(replies[name]['peak_bytes'] for replies in rounds) / 1e6
    for part in kept[0][name].get('parts', ()):
      of_part = median(replies[name]['parts'][part] for replies in kept)
      parts.setdefault(name, {})[part] = of_part
  return {
    'name': benchmark.name,
    'ratios': ratios,
    'ranges': ranges,
    'median_seconds': seconds,
    'peak_mb': peaks,
    'parts': parts,
    'check': check,
    'warnings': list(wrong.values()),
    'machine': machine.describe(),
  }


def to_markdown(report: dict, is_short: bool = False) -> str:
  """Returns the tables and a line that says how they were measured.

  With `is_short`, only the ratios are shown, and the line has no sizes.
  """
  times = [['contender', 'median s', 'peak MB']]
  for name, seconds in report['median_seconds'].items():
    times.append([name, f'{seconds:.4g}', f'{report["peak_mb"][name]:.0f}'])
  ratios = [['ratio', 'median', 'min – max']]
  for label, value in report['ratios'].items():
    least, most = report['ranges'][label]
    ratios.append([label, f'{value:.3g}', f'{least:.3g} – {most:.3g}'])
  columns = report['parts'].values()
  parts = [['part, median s', *report['parts']]]
  for part in next(iter(columns), ()):
    parts.append([part, *(f'{seconds[part]:.3g}' for seconds in columns)])
  sizes = []
  for name, value in report['settings'].items():
    values = value if isinstance(value, list | tuple) else [value]
    sizes.append(f'{name}={",".join(map(str, values))}')
  used, revision = report['machine'], report['git_revision'] or 'unknown'
  names = [wording.count(used['cores'], 'core'), used['cpu'], *used.get('gpus', ())]
  below = f'`{report["command"]}`;'
  if not is_short:
    below += f' {report["name"]}: {", ".join(sizes)};'
  below += (
    f' {wording.count(report["passes"], "pass")}, {report["dropped"]} dropped;'
    f' {", ".join(names)}; revision {revision}, {report["date"]}.'
  )
  warnings = [f'**Warning**: {each}' for each in report['warnings']]
  tables = [ratios] if is_short else [times, ratios, parts]
  shown = [text_table.to_markdown(table) for table in tables if len(table) > 1]
  return '\n'.join([*shown, below, *warnings, ''])


def given_sizes(benchmark: Benchmark) -> dict:
  """Returns the sizes of a benchmark from the flags."""
  sizes = benchmark.sizes | (benchmark.small if flags.FLAGS.small else {})
  for name in _SIZES:
    words = flags.FLAGS[name].value
    if words is None:
      continue
    if name not in sizes:
      raise errors.InputError(
        f'--{name} is not a size of {benchmark.name}, which has --{", --".join(sizes)}'
      )
    is_one = not isinstance(sizes[name], tuple)
    numbers = [int(n) for n in words if n.isdecimal() and int(n) > 0]
    if len(numbers) != len(words) or not words or (is_one and len(words) > 1):
      raise errors.InputError(
        f'--{name}={",".join(words)}: expected a positive number'
        + ('' if is_one else ', or several, separated by commas')
      )
    sizes[name] = numbers[0] if is_one else tuple(numbers)
  return sizes


def given_contenders(benchmark: Benchmark, sizes: dict) -> tuple[list[str], dict[str, str]]:
  """Returns the contenders that the flags name, and the interpreter of each peer."""
  given, interpreters = flags.FLAGS.contenders, {}
  names = benchmark.contenders(benchmark.names if given is None else given, sizes)
  known = benchmark.names + benchmark.optional
  form = r'(.+)@[1-9][0-9]*' if benchmark.by else '(.+)'
  found = [re.fullmatch(form, name) for name in names]
  is_known = all(each and each[1] in known for each in found)
  if not is_known or not names or len({*names}) < len(names):
    at = f', or NAME@SIZE for a size of --{benchmark.by}' if benchmark.by else ''
    raise errors.InputError(
      f'--contenders={",".join(given or names)}: name each once, of {", ".join(known)}{at}'
    )
  for word in flags.FLAGS.peers:
    peer, _, interpreter = word.partition('=')
    if peer not in benchmark.peers or not shutil.which(interpreter):
      raise errors.InputError(
        f'--peers={word}: expected NAME=INTERPRETER, the python of an environment that'
        f' has the package; NAME is one of {", ".join(benchmark.peers) or "another benchmark"}'
      )
    interpreters[peer] = interpreter
  return names, interpreters


def main(arguments: list[str]) -> None:
  """Runs the benchmark that the command line names."""
  if len(arguments) != 1 or arguments[0] not in BENCHMARKS:
    meant = ''.join(wording.meant(each, BENCHMARKS) for each in arguments)
    raise errors.InputError(f'name one benchmark of {", ".join(BENCHMARKS)}{meant}')
  found, output = BENCHMARKS[arguments[0]], flags.FLAGS.output
  sizes = given_sizes(found)
  names, interpreters = given_contenders(found, sizes)
  # The benchmark takes minutes, so it checks --output first.
  if output and not pathlib.Path(output).resolve().parent.is_dir():
    raise errors.InputError(f'--output={output}: the folder does not exist; make it first')
  with tempfile.TemporaryDirectory(prefix='benchmark_') as folder:
    arrays = os.path.join(folder, 'arrays.npz')
    if interpreters:
      module = importlib.import_module(f'launch.benchmarks.{found.name}')
      module.write_arrays(sizes, arrays)
    words = {
      name: [sys.executable, '-m', 'launch.benchmarks', found.name, name, json.dumps(sizes)]
      for name in names
    }
    for name, interpreter in interpreters.items():
      # -E ignores PYTHONPATH, so the interpreter uses its own packages.
      words[name] = [interpreter, '-E', str(_FOLDER / f'{name}.py'), arrays]
    timeout = flags.FLAGS.timeout_seconds
    contenders = {name: Contender(name, words[name], timeout) for name in words}
    report = measure(found, contenders, flags.FLAGS.passes, flags.FLAGS.max_foreign)
  # The command in the report has no names of files and interpreters, because they differ between
  # machines.
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
  print('\n' + to_markdown(report), end='')
  if output:
    with files.writing(f'--output={output}', 'the results above are all'):
      files.write_json(output, report, is_sorted=False)
    print(f'\nwritten to {output}')
  if report['warnings']:
    sys.exit(1)


if __name__ == '__main__':
  # Flags are not defined at import, because other commands have flags with the same names.
  _peers = [peer for benchmark in BENCHMARKS.values() for peer in benchmark.peers]
  flags.DEFINE_string('output', None, 'JSON file to write')
  flags.DEFINE_list(
    'contenders',
    None,
    'contenders to run, separated by commas: NAME, or NAME@SIZE for one size only; default: the'
    " benchmark's usual contenders",
  )
  flags.DEFINE_list(
    'peers',
    [],
    f'additional contenders NAME=INTERPRETER. NAME is one of {", ".join(_peers)}. INTERPRETER is'
    ' the python of an environment that has the package that NAME needs',
  )
  flags.DEFINE_integer('passes', 9, 'number of undisturbed passes to measure', lower_bound=1)
  flags.DEFINE_bool('small', False, 'use tiny sizes, to try a benchmark in seconds')
  app.define_float(
    'max_foreign',
    0.15,
    'largest share of the core time that other programs may use during a pass',
    least=0.0,
    most=1e6,
  )
  app.define_float(
    'timeout_seconds',
    1800.0,
    'time limit in seconds for building a contender, and for each of its rounds',
    least=0.1,
    most=86_400.0,
  )
  for _name in _SIZES:
    _having = [found.name for found in BENCHMARKS.values() if _name in found.sizes]
    flags.DEFINE_list(_name, None, f'size of the work, if NAME is {" or ".join(_having)}')
  width = max(map(len, BENCHMARKS))
  told = [f'  {name:{width}}  {found.summary}' for name, found in BENCHMARKS.items()]
  app.run(main, '\n'.join([__doc__, 'NAME is one of', *told, '']))
