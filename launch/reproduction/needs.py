"""What runs will roughly take: files, hours and disk, from runs before and sizes."""

import collections
import contextlib
import pathlib
import shutil
import statistics
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from launch.reproduction import results
from launch.sweeps import plan
from launch.sweeps import training
from tasks import experiment
from tasks import registry as tasks
from tasks import task as found_lib
from tasks.papers import fedmlh
from tasks.papers import names
from tasks.papers import registry
from tasks.papers import table as table_lib
from tff_xc import errors
from tff_xc import wording
from tff_xc.report import run_files
from tff_xc.report import text_table

_KEPT_RESULTS = pathlib.Path(__file__).parents[2] / 'docs' / 'results'
_CHECKPOINTS = 3  # That a run keeps, each of a model and two moments of it.
# Millions of parameters beside the class rows, by encoder or task; of others fewer.
_MILLIONS = {
  'mobilenet_v3': 3.0,
  'mobilenet_v2': 2.3,
  'femnist': 6.5,
  'shakespeare': 0.8,
  'amazoncat-13k': 106.0,
  'amazon-670k': 71.0,
  'wikilshtc-325k': 830.0,
}
# Clients, whose models MOON keeps.
_CLIENTS = {'femnist': 3_195, 'celeba': 8_408, 'shakespeare': 1_016}
_TOLD = (
  's / round: without evaluations, of runs before of this task, by clients a round\n'
  '  times epochs or steps, and layers; –: none has run yet. A few rounds will do'
)


def with_data(runs: Sequence[plan.Run]) -> list[plan.Run]:
  """Returns the runs whose data are there, and prints what is missing, also in part."""
  missing: dict[str, str] = {}
  for task, directory in {
    run.config['task']: run.config['data_dir'] for run in runs
  }.items():
    missing[task] = ''
    try:
      training.check_files(task, directory)
    except errors.InputError as e:
      missing[task] = str(e)
    if part := found_lib.part(tasks.get(task), directory):
      print(f'only a part: {task} in {directory} has {part}', flush=True)
  if all(missing.values()):
    raise found_lib.error(missing)
  found_lib.tell(missing)
  return [run for run in runs if not missing[run.config['task']]]


def told(runs: Sequence[plan.Run], output: pathlib.Path) -> str:
  """Returns what the runs that are not finished will take, for people."""
  waiting = [run for run in runs if not training.is_finished(run)]
  groups: dict[tuple[str, str], list[plan.Run]] = {}
  for run in waiting:
    key = run.config['task'], run.config['algorithm']
    groups.setdefault(key, []).append(run)
  lines = [['runs of', 'left', 'rounds', 's / round', 'time', 'disk']]
  known, total, unknown = _known(output), 0.0, 0
  for (task, algorithm), group in groups.items():
    left = [run.config['rounds'] - _rounds_done(run) for run in group]
    per_round = time = table_lib.NONE
    of_task = task, algorithm == 'centralized'
    if per_work := known.get((task, algorithm)) or known.get(of_task):
      each = [per_work * work(run.config) for run in group]
      seconds = sum(n * s for n, s in zip(left, each, strict=True))
      total += seconds
      per_round = f'{statistics.fmean(each):.2g}'
      time = wording.human_duration(seconds)
    else:
      unknown += len(group)
    of_disk = wording.human_bytes(sum(map(disk_bytes, group)))
    head = f'{task} {algorithm}', str(len(group)), f'{sum(left):,}'
    lines.append([*head, per_round, time, of_disk])
  table = text_table.to_text(lines, (0,), text_table.terminal_width())
  there = output if output.is_dir() else pathlib.Path()
  disk = wording.human_bytes(sum(map(disk_bytes, waiting)))
  free = wording.human_bytes(shutil.disk_usage(there).free)
  without = f', without {wording.count(unknown, "run")}' if unknown else ''
  hours = (
    'not known'
    if waiting and unknown == len(waiting)
    else (f'about {wording.human_duration(total)}')
  )
  return (
    f'{wording.count(len(runs), "run")}, {len(waiting)} of them not finished\n\n{table}\n{_TOLD}\n\n'
    f'one after another{without}: {hours}; side by side'
    f' as far as memory allows (--jobs)\ndisk: about {disk}, {free} free\n'
  )


def _known(output: pathlib.Path) -> dict[tuple[str, str | bool], float]:
  """Returns seconds of a round over `work`, by task and algorithm, and for others of a
  task by whether they are centralised; those of runs in `output` go first.
  """
  kept, own = collections.defaultdict(list), collections.defaultdict(list)

  def add(to, config, seconds: float) -> None:
    task, algorithm = config['task'], config['algorithm']
    for of in (algorithm, algorithm == 'centralized'):
      to[task, of].append(seconds / work(config))

  for paper in {name.partition('/')[0] for name in registry.RESULTS}:
    for line in results.read_all(_KEPT_RESULTS / f'{paper}.csv').itertuples():
      if line.metric == names.SECONDS and line.mean:
        changes = table_lib.changes(line.changes)
        config = experiment.resolve(line.task, line.algorithm, changes)
        add(kept, config, float(line.mean))
  for path in (output / 'runs').glob(f'*/*/*/{run_files.METRICS}'):
    with contextlib.suppress(errors.InputError):
      config = run_files.read_config(path.with_name(run_files.CONFIG))
      seconds = run_files.read_metrics(path).get('seconds')
      # A run that was stopped in its first round has none.
      if seconds is not None and seconds.count():
        add(own, config, float(seconds.median()))
  return {k: statistics.median(found) for k, found in {**kept, **own}.items()}


def _rounds_done(run: plan.Run) -> int:
  """Returns the round of the newest checkpoint; 0 without one."""
  found = (run.folder / 'checkpoints').glob('round_*.npz')
  done = (path.stem.removeprefix('round_') for path in found)
  newest = max(map(int, filter(str.isdigit, done)), default=0)
  return min(newest, run.config['rounds'])


def disk_bytes(run: plan.Run) -> int:
  """Returns about the most that the directory of a run holds."""
  values, task = run_files.flat(run.config), run.config['task']
  classes = tasks.get(task).num_classes or values.get('num_classes') or 0
  hidden, drawn = values.get('hidden_dim', 64), values.get('clients_per_round')
  if features := values.get('hashed_features'):
    outputs = classes
    if 'hash_tables' in values:
      outputs = values['hash_tables'] * values['hash_buckets']
    size = fedmlh.parameters(features, hidden, outputs)
  else:
    millions = _MILLIONS.get(values.get('encoder'), _MILLIONS.get(task, 0.5))
    rows = classes * values.get('embedding_dim', hidden)
    size = int(1e6 * millions) + rows
  models = 3 * min(_CHECKPOINTS, run.config['rounds'])
  if run.config['algorithm'] == 'moon' and not values.get('moon_published'):
    taking_part = run.config['rounds'] * (drawn or 1)
    models += min(_CLIENTS.get(task, taking_part), taking_part)
  return 4 * size * models


def work(config: Mapping[str, Any]) -> float:
  """Returns to what a run's seconds of a round are in proportion."""
  values = run_files.flat(config)
  passes = values.get('local_steps') or values.get('local_epochs', 1)
  clients, layers = values.get('clients_per_round') or 1, values.get('depth', 1)
  return clients * passes * layers


def cost(run: plan.Run) -> float:
  """Returns `work` times the length of rows: which runs take most time and memory."""
  values = run_files.flat(run.config)
  return work(run.config) * values.get('embedding_dim', 1)
