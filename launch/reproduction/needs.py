"""What runs at the paper's size will take, from a short probe of each kind.

A probe trains two rounds of the costliest run of a task, an algorithm and its
switches, in a directory beside the runs that is deleted afterwards. Seconds of the
other runs are those of the probe, in proportion to their `work`.
"""

import contextlib
import dataclasses
import pathlib
import shutil
import tempfile
from collections.abc import Mapping
from collections.abc import Sequence

from launch.reproduction import outcome as outcome_lib
from launch.sweeps import children
from launch.sweeps import plan
from launch.sweeps import training
from tasks import registry as tasks
from tasks import task as found_lib
from tff_xc import errors
from tff_xc import memory
from tff_xc import wording
from tff_xc.experiment import progress
from tff_xc.report import run_files
from tff_xc.report import text_table

# The checkpoints that a run keeps, as `tff_xc.experiment.checkpoints`, which imports
# TensorFlow, and where they lie.
KEPT = 3
_FOLDER = 'checkpoints'
_ROUNDS = 2
_SCALED = (
  's / round and memory: of the costliest run of a row, which was probed\n'
  'time: of the rounds left, by clients a round times epochs or steps, and layers, and\n'
  '  of their evaluations, each as long as that of the probe'
)


@dataclasses.dataclass(frozen=True)
class Probe:
  """What two rounds of a run took.

  Attributes:
    start_seconds: of everything else: data, compilation, the first evaluation.
    round_seconds: of the second round.
    evaluation_seconds: of the evaluation after it, and a checkpoint.
    work: of the run that was probed, see `work`.
    peak_bytes: of memory.
    checkpoint_bytes: of a checkpoint.
    state_bytes: of what a client keeps between rounds; 0: clients keep nothing.
    other_bytes: of the run's other files.
    clients: of the data.
  """

  start_seconds: float
  round_seconds: float
  evaluation_seconds: float
  work: float
  peak_bytes: int
  checkpoint_bytes: int
  state_bytes: int
  other_bytes: int
  clients: int

  def seconds(self, run: plan.Run) -> float:
    """Returns what is left of such a run, which goes on from its checkpoint."""
    done = _rounds_done(run)
    evaluations = _schedule(run).left(run.config['eval_every'], done)
    rounds = (run.config['rounds'] - done) * work(run) / self.work
    return (
      self.start_seconds
      + rounds * self.round_seconds
      + evaluations * self.evaluation_seconds
    )

  def disk_bytes(self, run: plan.Run) -> int:
    """Returns the most that the directory of such a run holds.

    Of each client that has taken part it holds what the client keeps, and for each
    checkpoint what those kept before who took part since.
    """
    drawn = run_files.flat(run.config).get('clients_per_round', 0)
    rounds, every = run.config['rounds'], run.config['checkpoint_every']
    kept = min(KEPT, _schedule(run).left(every, 0))
    states = min(self.clients, rounds * drawn)
    states += kept * min(self.clients, every * drawn)
    return (
      self.other_bytes
      + kept * self.checkpoint_bytes
      + min(states, rounds * drawn) * self.state_bytes
    )


def with_data(runs: Sequence[plan.Run]) -> list[plan.Run]:
  """Returns the runs whose data are there, and prints what is missing, also in part.

  Raises:
    errors.InputError: all data are missing; a line for each thing that is.
  """
  missing: dict[str, str] = {}
  for run in runs:
    task = run.config['task']
    if task in missing:
      continue
    missing[task] = ''
    directory = run.config['data_dir']
    try:
      children.check_data(task, directory)
    except errors.InputError as e:
      missing[task] = str(e)
    if part := found_lib.part(tasks.get(task), directory):
      print(f'only a part: {task} in {directory} has {part}', flush=True)
  if all(missing.values()):
    raise found_lib.error(missing)
  found_lib.tell(missing)
  return [run for run in runs if not missing[run.config['task']]]


def told(
  runs: Sequence[plan.Run], output: pathlib.Path
) -> tuple[str, list[str]]:
  """Trains a probe of each kind of runs; returns what all runs will take.

  Args:
    runs: with their data; of the unfinished ones the costliest of each kind is
      probed.
    output: the directory of all runs.

  Returns:
    What they take, for people, and the probes that failed, a sentence each.

  Raises:
    errors.DamageError: the directory cannot be written.
    KeyboardInterrupt: after SIGINT or SIGTERM; no probe is left running.
  """
  with outcome_lib.writing(output):
    return _told(runs, output)


def _told(runs, output: pathlib.Path) -> tuple[str, list[str]]:
  waiting = [run for run in runs if not training.is_finished(run)]
  lines = [['runs of', 'left', 'rounds', 's / round', 'time', 'memory']]
  total, most, disk = 0.0, 0, 0
  failures = []
  with tempfile.TemporaryDirectory(prefix='probe_', dir=output) as folder:
    for number, (kind, group) in enumerate(_kinds(waiting).items()):
      print(f'probing {kind}: {_ROUNDS} rounds ...', flush=True)
      rounds = sum(run.config['rounds'] - _rounds_done(run) for run in group)
      try:
        probe = _probe(max(group, key=cost), pathlib.Path(folder, str(number)))
      except errors.InputError as e:
        failures.append(str(e))
        lines.append([kind, str(len(group)), f'{rounds:,}', *['failed'] * 3])
        continue
      seconds = sum(map(probe.seconds, group))
      total, most = total + seconds, max(most, probe.peak_bytes)
      disk += sum(map(probe.disk_bytes, group))
      lines.append(
        [
          *(kind, str(len(group)), f'{rounds:,}', f'{probe.round_seconds:.3g}'),
          *(
            wording.human_duration(seconds),
            wording.human_bytes(probe.peak_bytes),
          ),
        ]
      )
  table = text_table.to_text(lines, (0,), text_table.terminal_width())
  text = f'{len(runs)} runs, {len(waiting)} of them not finished\n\n{table}'
  if failures and not most:  # None was probed.
    return text, failures
  known = ', without those whose probe failed' if failures else ''
  free = shutil.disk_usage(output).free
  free_memory = memory.free_bytes()
  text += (
    f'\n{_SCALED}\n\none after another{known}: {wording.human_duration(total)};'
    ' side by side as far as memory allows (--jobs)\n'
    f'memory: {wording.human_bytes(most)} a run, {wording.human_bytes(free_memory)} free\n'
    f'disk: at most {wording.human_bytes(disk)}, {wording.human_bytes(free)} free\n'
  )
  return text, failures


def _kinds(runs: Sequence[plan.Run]) -> Mapping[str, list[plan.Run]]:
  """Returns runs by task, algorithm and the switches that rows or flags turn on.

  A switch may make another method of it: what clients keep, what a round takes.
  """
  found: dict[str, list[plan.Run]] = {}
  for run in runs:
    switches = sorted(n for n, value in run.values.items() if value is True)
    words = run.config['task'], run.config['algorithm'], *switches
    found.setdefault(' '.join(words), []).append(run)
  return found


def _schedule(run: plan.Run) -> progress.Schedule:
  names = 'rounds', 'eval_every', 'checkpoint_every'
  return progress.Schedule(*(run.config[name] for name in names))


def _rounds_done(run: plan.Run) -> int:
  """Returns the round of the newest checkpoint; 0 without one."""
  found = (run.folder / _FOLDER).glob('round_*.npz')
  done = (path.stem.removeprefix('round_') for path in found)
  newest = max(map(int, filter(str.isdigit, done)), default=0)
  return min(newest, run.config['rounds'])


def work(run: plan.Run) -> float:
  """Returns to what a run's seconds of a round are in proportion.

  Clients of a round times their passes over their data, or their steps, times the
  layers of a ResNet; 1 for what the run does not have.
  """
  values = run_files.flat(run.config)
  passes = values.get('local_steps') or values.get('local_epochs', 1)
  layers = values.get('depth', 1)
  return values.get('clients_per_round', 1) * passes * layers


def cost(run: plan.Run) -> float:
  """Returns `work` times the length of rows: which runs take most time and memory."""
  return work(run) * run_files.flat(run.config).get('embedding_dim', 1)


def _probe(run: plan.Run, folder: pathlib.Path) -> Probe:
  """Trains a few rounds of a run in a new folder.

  Raises:
    errors.InputError: it failed.
  """
  values = {
    n: v for n, v in run.values.items() if n not in ('target', 'stop_after')
  }
  # Two checkpoints, since the time between them tells of the evaluation.
  values |= {'rounds': _ROUNDS, 'eval_every': _ROUNDS, 'checkpoint_every': 1}
  short = plan.Run(values, run.config, folder, f'probe of {run.point}')
  failed, seen = [], []

  def ended(child, jobs):
    del jobs
    seen.append((child.seconds, child.peak_bytes))
    failed.extend([child.error] if child.error else [])

  arguments = training.arguments_of(short, {}, None)
  children.run_all([short], lambda *_: arguments, 1, ended)
  if failed:
    raise errors.InputError(f'the probe of {run.point} failed: {failed[0]}')
  [(seconds, peak)] = seen
  probe = _measured(short, seconds, peak)
  with contextlib.suppress(OSError):
    shutil.rmtree(short.folder)
  return probe


def _measured(run: plan.Run, seconds: float, peak_bytes: int) -> Probe:
  """Returns what the files of a probe tell, and what its process took."""
  rounds = run_files.read_metrics(run.folder / run_files.METRICS)['seconds']
  config = run_files.read_config(run.folder / run_files.CONFIG)
  checkpoints, states = (
    _sizes(run.folder / name) for name in (_FOLDER, 'client_states')
  )
  first, last = (
    (run.folder / _FOLDER / f'round_{number}.npz').stat().st_mtime
    for number in (1, _ROUNDS)
  )
  # The evaluation of round 0, which TensorFlow traces, is part of the start.
  evaluation = max(last - first - float(rounds.iloc[-1]), 0.0)
  return Probe(
    start_seconds=max(seconds - float(rounds.sum()) - evaluation, 0.0),
    round_seconds=float(rounds.iloc[-1]),
    evaluation_seconds=evaluation,
    work=work(run),
    peak_bytes=peak_bytes,
    checkpoint_bytes=max(checkpoints),
    state_bytes=max(states, default=0),
    other_bytes=sum(_sizes(run.folder)) - sum(checkpoints) - sum(states),
    clients=config['data']['clients'],
  )


def _sizes(folder: pathlib.Path) -> list[int]:
  """Returns the sizes of all files in a folder, none if it is not there."""
  return [path.stat().st_size for path in folder.rglob('*.*')]
