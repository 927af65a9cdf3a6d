"""What a benchmark is, how its contenders run side by side, and its report.

Every contender is a process. In every pass each of them runs one round, one at a time,
in a shuffled order; ratios are taken within a pass. A pass in which other processes used
the cores is dropped and repeated. Imports neither NumPy nor TensorFlow.
"""

import contextlib
import dataclasses
import json
import os
import random
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

import psutil

import tff_xc
from launch import machine
from tff_xc import errors, wording
from tff_xc.report import text_table

STARTED_VARIABLE = 'BENCHMARK_STARTED'
_TAIL_CHARACTERS = 1500
_GRACE_SECONDS = 5.0
_WARM_UP = 2  # Rounds of each contender before the first pass.
_ATTEMPTS = 3  # The most passes that are tried for each undisturbed one.


@dataclasses.dataclass(frozen=True)
class Benchmark:
  """A benchmark. A contender is called NAME, or NAME@SIZE."""

  name: str  # Its name on the command line, and of its module.
  summary: str  # One line for people.
  sizes: dict[str, int | tuple[int, ...]]  # Flags, and their defaults.
  small: dict[str, int | tuple[int, ...]]  # To try it in seconds.
  names: tuple[str, ...]  # The NAMEs that run by default.
  # (contender, sizes as attributes) -> a function for `protocol.serve`; called in the
  # contender's own process.
  build: Callable
  # NAMEs whose times are divided, at each size.
  ratios: tuple[tuple[str, str], ...]
  # NAMEs that have the results of the first one, at each size.
  same: tuple[str, ...]
  tolerances: dict[str, float]  # Relative, by the name of a result.
  optional: tuple[str, ...] = ()  # NAMEs that run only if they are given.
  by: str = ''  # The flag of the SIZEs.
  peers: tuple[str, ...] = ()  # NAMEs of the programs peers/NAME.py.
  # (sizes, path): writes what peers start from, as .npz.
  write_arrays: Callable | None = None
  fresh: bool = False  # Whether every round is a new process.

  def contenders(self, sizes: dict) -> list[str]:
    """Returns the contenders that run by default."""
    at = [f'@{size}' for size in sizes[self.by]] if self.by else ['']
    return [name + size for size in at for name in self.names]

  def pairs(self, contenders: list[str]) -> list[tuple[str, str]]:
    """Returns the contenders to divide: by another NAME, or by NAME's first size."""
    found, first = [], {}
    for above in contenders:
      name, _, size = above.partition('@')
      for below in contenders:
        other, _, its_size = below.partition('@')
        if (name, other) in self.ratios and size == its_size:
          found.append((above, below))
      if first.setdefault(name, above) != above:
        found.append((above, first[name]))
    return found

  def disagreeing(self, check: dict[str, dict[str, float]]) -> dict[str, str]:
    """Returns a sentence for each contender whose first results are other ones."""
    wrong, first = {}, {}
    for contender, found in check.items():
      name, _, size = contender.partition('@')
      if name in self.same + self.peers:
        base = first.setdefault(size, contender)
        for key, tolerance in self.tolerances.items():
          value, wanted = found[key], check[base][key]
          # `not <=` instead of `>`, so that a nan disagrees.
          if not abs(value - wanted) <= tolerance * abs(wanted):
            wrong[contender] = (
              f'{contender} does not compute what {base} does: {key} {value:.6g} instead'
              f' of {wanted:.6g} after one round'
            )
    return wrong


class Contender:
  """A contender's process, which runs a round for each line that it is sent."""

  def __init__(self, name: str, command: list[str], timeout_seconds: float):
    """Keeps the arguments; `start` starts the process."""
    self.name, self._process = name, None
    self._command, self._timeout = command, timeout_seconds

  def start(self) -> None:
    """Starts the process and waits until it is built."""
    self._log = tempfile.TemporaryFile('w+', errors='replace')  # noqa: SIM115
    paths = os.pathsep.join(path or os.getcwd() for path in sys.path)
    more = {'PYTHONPATH': paths, STARTED_VARIABLE: repr(time.monotonic())}
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
    """Runs a round; returns its seconds, parts and check, and the peak of memory."""
    with contextlib.suppress(BrokenPipeError):  # `_answer` reports the cause.
      self._process.stdin.write(b'round\n')
      self._process.stdin.flush()
    answer = self._answer('during a round')
    return answer | {'peak_bytes': machine.peak_bytes(self._process.pid)}

  def end(self) -> None:
    """Ends the process; does nothing if none runs."""
    process, self._process = self._process, None
    if process is None:
      return
    try:
      process.communicate(timeout=_GRACE_SECONDS)  # There is no more to do for it.
    except subprocess.TimeoutExpired:
      os.killpg(process.pid, signal.SIGKILL)
      process.communicate()

  def _answer(self, when: str) -> dict:
    # An answer is one line, and there is none before the next round.
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
  """Returns the environment without the setting that this package adds."""
  added = {tff_xc.ONEDNN} if tff_xc.ONEDNN_GIVEN is None else set()
  return {k: v for k, v in os.environ.items() if k not in added}


def cpu_seconds() -> tuple[float, float]:
  """Returns the busy seconds of all cores so far, and those of us and our children.

  Steal, the time that a hypervisor gave to others, disturbs like another process.
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
      f'only {len(kept)} of the {passes} passes asked for were undisturbed; repeat it on'
      ' a free machine'
    )
  return report | {'passes': len(kept), 'dropped': len(dropped)}


def _passes(contenders, passes, max_foreign, fresh):
  """Returns the replies by contender of undisturbed passes, and of disturbed ones."""
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
  """Returns what was measured, ready for JSON.

  Contenders with wrong results are left out of the ratios and named in the warnings.
  `ratios` are medians over passes of the ratio within a pass, `peak_mb` the sum over a
  contender's processes of their peak resident sizes, in all rounds.
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
  """Returns the tables, or only the ratios, and below them how they were made."""
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
  below = (
    f'`{report["command"]}`; {report["name"]}: {", ".join(sizes)};'
    f' {wording.count(report["passes"], "pass")}, {report["dropped"]} dropped;'
    f' {", ".join(names)}; revision {revision}, {report["date"]}.'
  )
  warnings = [f'**Warning**: {each}' for each in report['warnings']]
  tables = [ratios] if is_short else [times, ratios, parts]
  shown = [text_table.to_markdown(table) for table in tables if len(table) > 1]
  return '\n'.join([*shown, below, *warnings, ''])
