"""What runs at the paper's size will take, from a short probe of each kind.

A probe trains two rounds of the costliest run of a task, an algorithm and its
switches, in a directory beside the runs that is deleted afterwards. Seconds of the other runs are those of the
probe, in proportion to their `work`.
"""

import contextlib
import dataclasses
import pathlib
import shutil
import tempfile
from collections.abc import Mapping
from collections.abc import Sequence

import psutil

from launch import machine
from launch.reproduction import outcome as outcome_lib
from launch.sweeps import children
from launch.sweeps import plan
from launch.sweeps import training
from tasks import found as found_lib
from tasks import registry as tasks
from tff_xc import errors
from tff_xc.experiment import progress
from tff_xc.report import run_files
from tff_xc.report import text_table
from tff_xc.report import units

# How many a run keeps, `tff_xc.experiment.checkpoints`, which imports TensorFlow.
CHECKPOINTS = 3
_ROUNDS = 2
_SCALED = (
  's / round and memory: of the costliest run of a row, which was probed\n'
  'time: of all runs of the row, by clients a round times epochs or steps, and layers'
)


@dataclasses.dataclass(frozen=True)
class Probe:
  """What two rounds of a run took.

  Attributes:
    start_seconds: of everything but the rounds: data, compilation, evaluation.
    round_seconds: of the second round.
    peak_bytes: of memory.
    checkpoint_bytes: of a checkpoint.
    state_bytes: of what a client keeps between rounds; 0: clients keep nothing.
    other_bytes: of the run's other files.
    clients: of the data.
  """

  start_seconds: float
  round_seconds: float
  peak_bytes: int
  checkpoint_bytes: int
  state_bytes: int
  other_bytes: int
  clients: int

  def disk_bytes(self, run: plan.Run) -> int:
    """Returns the most that the directory of such a run holds.

    Of each client that has taken part it holds what the client keeps, and for each
    checkpoint what those kept before who took part since.
    """
    drawn = run_files.flat(run.config).get('clients_per_round', 0)
    rounds, every = run.config['rounds'], run.config['checkpoint_every']
    schedule = progress.Schedule(rounds, run.config['eval_every'], every)
    kept = min(CHECKPOINTS, schedule.left(every, 0))
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
      rounds = sum(run.config['rounds'] for run in group)
      try:
        costliest = max(group, key=cost)
        probe = _probe(costliest, pathlib.Path(folder, str(number)))
      except errors.InputError as e:
        failures.append(str(e))
        lines.append([kind, str(len(group)), f'{rounds:,}', *['failed'] * 3])
        continue
      seconds = sum(
        probe.start_seconds
        + run.config['rounds']
        * probe.round_seconds
        * work(run)
        / work(costliest)
        for run in group
      )
      total, most = total + seconds, max(most, probe.peak_bytes)
      disk += sum(map(probe.disk_bytes, group))
      lines.append(
        [
          *(kind, str(len(group)), f'{rounds:,}', f'{probe.round_seconds:.3g}'),
          *(units.human_duration(seconds), units.human_bytes(probe.peak_bytes)),
        ]
      )
  table = text_table.to_text(lines, (0,), text_table.terminal_width())
  text = f'{len(runs)} runs, {len(waiting)} of them not finished\n\n{table}'
  if failures and not most:  # None was probed.
    return text, failures
  known = ', without those whose probe failed' if failures else ''
  free = shutil.disk_usage(output).free
  memory = machine.free_bytes(
    psutil.virtual_memory().available, pathlib.Path('/sys/fs/cgroup')
  )
  text += (
    f'\n{_SCALED}\n\none after another{known}: {units.human_duration(total)}, without most'
    ' evaluations; side by side as far as memory allows (--jobs)\n'
    f'memory: {units.human_bytes(most)} a run, {units.human_bytes(memory)} free\n'
    f'disk: at most {units.human_bytes(disk)}, {units.human_bytes(free)} free\n'
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
  values = {**run.values, 'rounds': _ROUNDS, 'eval_every': _ROUNDS}
  values = {
    n: v for n, v in values.items() if n not in ('target', 'stop_after')
  }
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
  rounds = run_files.read_metrics(short.folder / run_files.METRICS)['seconds']
  clients = run_files.read_config(short.folder / run_files.CONFIG)['data'][
    'clients'
  ]
  checkpoints, states = (
    _sizes(short.folder / name) for name in ('checkpoints', 'client_states')
  )
  others = sum(_sizes(short.folder)) - sum(checkpoints) - sum(states)
  with contextlib.suppress(OSError):
    shutil.rmtree(short.folder)
  return Probe(
    max(seconds - float(rounds.sum()), 0.0),
    float(rounds.iloc[-1]),
    peak,
    max(checkpoints),
    max(states, default=0),
    others,
    clients,
  )


def _sizes(folder: pathlib.Path) -> list[int]:
  """Returns the sizes of all files in a folder, none if it is not there."""
  return [path.stat().st_size for path in folder.rglob('*.*')]
