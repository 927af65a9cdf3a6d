"""Trains all methods on one footing, and makes the tables of docs/choosing.md.

  .venv/bin/python tools/methods.py OUT [--settings=few,omniglot]

Of each setting (data, and how they lie on clients), all methods have the same clients,
rounds, batches and, unless a method is named after its server, the same server. A
method's clients' rate is the best of its default on the task times _FACTORS, of seed 0,
by examples that clients held out; with that rate it has three seeds. What is done is not
done again. OUT/methods.csv has a line for each setting and method: the test score, in %,
after all rounds; when it had sent as many bytes as FedSS in all of them; and when it had
trained for as long as FedAvg in all of them, by seconds that `--seconds` measures of all
methods in turn. Runs are one after another: two settings go side by side in two OUTs.
OUT/methods_rounds.csv, _bytes and _seconds have a column for each setting.
"""

import argparse
import functools
import json
import math
import os
import pathlib
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

sys.path.insert(0, os.fspath(pathlib.Path(__file__).parents[1]))

from launch.sweeps import plan
from launch.sweeps import training
from tasks import experiment
from tasks import registry as tasks
from tff_xc import errors
from tff_xc.measure import catalog
from tff_xc.report import run_files

_FACTORS = (0.3, 1.0, 3.0)
_SEEDS = (0, 1, 2)
# Who is named after a server keeps it.
_OF_SERVERS = ('fedavg', 'fedavgm', 'fedadam', 'fedams')
# All but those of clients with one class, and fedrep, whose rows are of single clients.
_METHODS = (
  *_OF_SERVERS,
  *('fedprox', 'moon', 'feddyn', 'scaffold', 'fednova', 'fedvc', 'fedir'),
  *('fedrs', 'fedlc', 'fedbabu', 'fedproto', 'fedss', 'negonly', 'posonly'),
  *('fedaws_posonly', 'fedaws_softmax', 'turbosvm', 'fedmlh'),
  *('centralized', 'logit_adjustment'),
)
_MOMENTUM = {
  'server_optimizer': 'sgd',
  'server_learning_rate': 1.0,
  'server_momentum': 0.9,
}
_ADAM = {'server_optimizer': 'adam', 'server_learning_rate': 0.003}
# Clients whose held-out examples choose the rate.
_HELD_OUT = {'client_test_fraction': 0.1, 'evaluate_clients': 50}
_CHOOSES = 'client_top1_mean'
_GLYPHS = {
  'num_classes': 60,
  'negatives': 10,
  'num_clients': 100,
  'examples_per_client': 120,
  'clients_per_round': 10,
  'batch_size': 32,
  'steps_per_round': 40,
  'rounds': 60,
  **_MOMENTUM,
}
# The task, what all methods have, and methods that it leaves out: tables of buckets need
# more classes, and machines over a thousand classes more seconds.
_SETTINGS = {
  # A client has much of few classes, and little of most.
  'within': (
    *('glyphs', {**_GLYPHS, 'split': 'dirichlet', 'concentration': 3.0}),
    ('fedmlh',),
  ),
  # Large and small clients.
  'sizes': (
    'glyphs',
    {**_GLYPHS, 'split': 'dirichlet', 'concentration': 6000.0}
    | {'size_deviation': 1.2},
    ('fedmlh',),
  ),
  # A client has 3 of 60 classes.
  'few': ('glyphs', {**_GLYPHS, 'classes_per_client': 3}, ('fedmlh',)),
  'cifar10': (
    'cifar10-dirichlet',
    {'concentration': 0.5, 'clients_per_round': 5, 'local_steps': 4}
    | {'batch_size': 32, 'steps_per_round': 20, 'rounds': 40}
    | {'negatives': 3, **_MOMENTUM},
    ('fedmlh', 'negonly', 'fednova', 'fedvc', 'fedams', 'fedprox'),
  ),
  'omniglot': (
    'omniglot',
    {'clients_per_round': 8, 'steps_per_round': 8, 'rounds': 200, **_ADAM},
    ('turbosvm',),
  ),
  'landmarks': (
    'glyphs-landmarks',
    {'clients_per_round': 8, 'steps_per_round': 32, 'rounds': 100, **_ADAM},
    ('turbosvm',),
  ),
}


# Settings that not every algorithm has.
_OF_SOME = {
  *('clients_per_round', 'local_steps', 'steps_per_round', 'negatives'),
  *_MOMENTUM,
}


def methods(setting: str) -> list[str]:
  """Returns the algorithms of a setting."""
  return [name for name in _METHODS if name not in _SETTINGS[setting][2]]


def changes(setting: str, algorithm: str, rounds: int = 0) -> dict[str, Any]:
  """Returns what a method's runs have, but for rate and seed; `rounds` 0: all."""
  task, shared, _ = _SETTINGS[setting]
  known = experiment.resolve(task, algorithm)['hyperparameters']
  values = {**_HELD_OUT, **shared, 'rounds': rounds or shared['rounds']}
  values['eval_every'] = max(values['rounds'] // 10, 1)
  kept = _MOMENTUM if algorithm in _OF_SERVERS else {}
  return {
    name: value
    for name, value in values.items()
    if name not in kept and (name in known or name not in _OF_SOME)
  }


def rates(setting: str, algorithm: str) -> list[float]:
  """Returns the clients' rates that a method tries."""
  found = experiment.resolve(_SETTINGS[setting][0], algorithm)
  rate = found['hyperparameters']['client_learning_rate']
  return [round(rate * factor, 9) for factor in _FACTORS]


def _run(values, setting, algorithm, rate, seed) -> plan.Run:
  given = {
    **changes(setting, algorithm, values.rounds),
    'client_learning_rate': rate,
  }
  config = experiment.resolve(
    _SETTINGS[setting][0], algorithm, {**given, 'seed': seed}
  )
  folder = values.output / setting / f'{algorithm}_{rate:g}' / f'seed{seed}'
  return plan.Run(given, config, folder, f'{algorithm} {rate:g}')


@functools.lru_cache(maxsize=1)
def _loaded(*data: str):
  """Returns data that all methods of a setting share; task, directory, options as JSON."""
  task, data_dir, options = map(json.loads, data)
  return tasks.get(task).load(data_dir, options)


def _train(runs: Sequence[plan.Run]) -> set[pathlib.Path]:
  """Trains what is not finished, in this process; returns the folders that failed."""
  failed = set()
  for run in runs:
    if training.is_finished(run):
      continue
    print(f'\n{run.folder}', flush=True)
    experiment.install_runtime(run.config)
    data = (run.config[name] for name in ('task', 'data_dir', 'options'))
    try:
      loaded = _loaded(*map(json.dumps, data))
      experiment.with_data(run.config, loaded).run(run.folder)
    except errors.InputError as e:  # Such as a loss that is not finite.
      print(f'failed: {e}')
      failed.add(run.folder)
  return failed


def _trained(values, setting: str) -> dict[str, list[plan.Run]]:
  """Trains the runs of a setting; returns those of each method's best rate."""
  found = {}
  for name in methods(setting):
    runs = [
      _run(values, setting, name, rate, 0) for rate in rates(setting, name)
    ]
    failed = _train(runs)
    scores = {
      run.values['client_learning_rate']: _final(run)[_CHOOSES]
      for run in runs
      if run.folder not in failed
    }
    if scores:
      best = max(scores, key=scores.get)
      runs = [_run(values, setting, name, best, seed) for seed in _SEEDS]
      failed = _train(runs)
      found[name] = [run for run in runs if run.folder not in failed]
  return found


def _final(run: plan.Run) -> dict[str, float]:
  return run_files.read_run(run.folder).summary['final']


def seconds(values, setting: str) -> dict[str, float]:
  """Returns the median seconds of a round of each method, and writes them."""
  path = values.output / setting / 'seconds.json'
  if path.exists():
    return json.loads(path.read_text())
  if not values.seconds:
    return {}
  found = {}
  for name in methods(setting):
    rate = rates(setting, name)[1]
    run = _run(values, setting, name, rate, 0)
    given = {**run.values, 'rounds': 6, 'eval_every': 6}
    config = experiment.resolve(run.config['task'], name, {**given, 'seed': 0})
    short = plan.Run(given, config, values.output / setting / 'seconds' / name)
    _train([short])
    found[name] = float(
      run_files.read_run(short.folder).metrics['seconds'][3:].median()
    )
  path.write_text(json.dumps(found, indent=2))
  return found


def at_budget(
  metrics: pd.DataFrame, spent: pd.Series, budget: float, score: str
) -> float:
  """Returns a score of the last evaluated round within a budget; 0 if there is none."""
  scores = metrics[score][spent <= budget].dropna()
  return float(scores.iloc[-1]) if len(scores) else 0.0


def lines(values, setting: str) -> list[dict[str, Any]]:
  """Trains the runs of a setting, and returns a line for each method."""
  best = _trained(values, setting)
  took = seconds(values, setting)
  read = {
    name: [run_files.read_run(run.folder) for run in runs]
    for name, runs in best.items()
    if runs
  }
  final = next(iter(read.values()))[0].summary['final']
  score = next(name for name in catalog.SCORES if name in final)
  sent = lambda run: sum(
    run.metrics[f'bytes_{way}_per_client'] * run.metrics['clients']
    for way in ('down', 'up')
  ).fillna(0)
  bytes_budget = sent(read['fedss'][0]).sum() if 'fedss' in read else math.inf
  found = []
  for name, runs in read.items():
    rate = runs[0].hyperparameters['client_learning_rate']
    line = {
      'setting': setting,
      'method': name,
      'client rate': rate,
      'seeds': len(runs),
    }
    budgets = {'rounds': [run.summary['final'][score] for run in runs]}
    # Who sends nothing is not compared by bytes.
    budgets['bytes'] = [
      at_budget(run.metrics, sent(run).cumsum(), bytes_budget, score)
      for run in runs
      if sent(run).sum()
    ]
    if name in took:
      budget = took['fedavg'] * runs[0].config['rounds']
      budgets['seconds'] = [
        at_budget(run.metrics, took[name] * run.metrics['round'], budget, score)
        for run in runs
      ]
    for budget, scores in budgets.items():
      line[f'{score} %, {budget}'] = (
        100 * float(np.mean(scores)) if scores else math.nan
      )
      deviation = np.std(scores, ddof=1) if len(scores) > 1 else math.nan
      line[f'std, {budget}'] = 100 * float(deviation)
    line['MB a client'] = (
      float(sent(runs[0]).sum() / runs[0].metrics['clients'].sum()) / 1e6
    )
    line['seconds a round'] = took.get(name, math.nan)
    found.append(line)
  return found


def pivot(table: pd.DataFrame, budget: str) -> pd.DataFrame:
  """Returns methods by settings, cells such as '64.0 ± 1.2', the best with ' *'."""
  [column] = [name for name in table if name.endswith(f'%, {budget}')]
  cells = table.pivot(index='method', columns='setting', values=column)
  spread = table.pivot(
    index='method', columns='setting', values=f'std, {budget}'
  )
  shown = pd.DataFrame(index=cells.index)
  clients = cells.index.map(
    lambda name: name not in ('centralized', 'logit_adjustment')
  )
  for name in pd.unique(table['setting']):
    best = cells[name][clients].max()
    shown[name] = [
      ''
      if math.isnan(mean)
      else f'{mean:.1f} ± {std:.1f}' + ' *' * (mean == best)
      for mean, std in zip(cells[name], spread[name], strict=True)
    ]
  order = [name for name in _METHODS if name in shown.index]
  return shown.loc[order].reset_index()


def draw(table: pd.DataFrame, path: pathlib.Path) -> None:
  """Draws a panel for each setting: scores after equal rounds, and at equal bytes."""
  from tff_xc.report import methods as names
  from tff_xc.report import pictures

  settings = pd.unique(table['setting'])
  order = [name for name in _METHODS if (table['method'] == name).any()][::-1]
  figure, axes = pictures.panels(
    len(settings), 4, (13, 4.6 * -(-len(settings) // 4))
  )
  for ax, setting in zip(axes, settings, strict=False):
    rows = table[table['setting'] == setting]
    places = [order.index(name) for name in rows['method']]
    colours = [names.METHODS[name].colour for name in rows['method']]
    for budget, face in (('rounds', colours), ('bytes', 'none')):
      [column] = [name for name in table if name.endswith(f'%, {budget}')]
      ax.scatter(
        rows[column], places, 28, face, edgecolors=colours, label=budget
      )
    ax.set_yticks(
      range(len(order)), [names.title(name) for name in order], fontsize=7
    )
    pictures.label(ax, setting, 'score %', '')
  pictures.save(figure, path)


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument('output', type=pathlib.Path)
  parser.add_argument('--settings', default=','.join(_SETTINGS))
  parser.add_argument('--rounds', type=int, default=0)
  parser.add_argument(
    '--seconds', action='store_true', help='of a quiet computer'
  )
  values = parser.parse_args()
  rows = []
  for setting in values.settings.split(','):
    rows += lines(values, setting)
    table = pd.DataFrame(rows)
    table.to_csv(
      values.output / 'methods.csv', index=False, float_format='%.6g'
    )
  for budget in ('rounds', 'bytes', 'seconds'):
    if f'std, {budget}' in table:
      shown = pivot(table, budget)
      shown.to_csv(values.output / f'methods_{budget}.csv', index=False)
      print(f'\nequal {budget}\n{shown.to_string(index=False)}')
  draw(table, values.output / 'methods.png')


if __name__ == '__main__':
  main()
