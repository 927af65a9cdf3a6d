"""Trains all methods on one footing, and makes the tables of docs/choosing.md.

  .venv/bin/python tools/methods.py OUT [--settings=few,omniglot] [--methods=fedss,moon]

Of each setting (data, and how they lie on clients), all methods have the same rounds,
about as many batches and, unless a method has a server of its own, the same server; all
but FedVC, which draws clients by their size, the same clients. One rate is
searched: the server's, if that is Adam or AMSGrad, to which clients' rates matter little,
else the clients'. The best of a third of its value on the task, that value and three times
it, of seed 0, by examples that clients held out, is taken; where the best is the last one,
the next is tried, too. With that rate a method has three seeds.

OUT/methods.csv has a line for each setting and method, with test scores in %: after all
rounds; at equal bytes, sent to clients as `launch.compare` counts them; and at equal
seconds, by those of a round, which `--seconds` measures of all methods in turn. Equal is
what the cheapest method with clients spent in all rounds. Between two evaluations, scores
are on the line through them. A method of which a seed diverged has no score. 'rounds to
90 %' is the mean round in which seeds reach 0.9 of what `centralized` has in the end, inf
if one does not. OUT/methods_rounds.csv, _bytes, _seconds and _speed (rounds to 90 %)
have a column for each setting. OUT/methods_runs.csv has a line for each run, those of
other rates, too. Settings that OUT/methods.csv has from before and that are not asked for
stay as they are, without runs.

What is done is not done again. With `--methods`, nothing but these methods' runs is made:
several such calls, of different methods, may go on side by side in one OUT, and one
without it, after them, makes the tables.
"""

import argparse
import functools
import json
import math
import os
import pathlib
import sys
from collections.abc import Callable
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
from tff_xc.measure import targets
from tff_xc.report import run_files

# Of the task's rate; those beyond the three in the middle only beside a best one.
_FACTORS = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
_SEEDS = (0, 1, 2)
_NO_CLIENTS = ('centralized', 'logit_adjustment')
# Who is named after a server keeps it.
_OF_SERVERS = ('fedavg', 'fedavgm', 'fedadam', 'fedams')
# All but those of clients with one class; fedrep, whose rows are of single clients; and
# fullsoftmax, which is fedavgm or fedadam with the server of the setting.
_METHODS = (
  *_OF_SERVERS,
  *('fedprox', 'moon', 'feddyn', 'scaffold', 'fednova', 'fedvc', 'fedir'),
  *('fedrs', 'fedlc', 'fedbabu', 'fedproto', 'fedss', 'negonly', 'posonly'),
  *('fedaws_posonly', 'fedaws_softmax', 'turbosvm', 'fedmlh'),
  *_NO_CLIENTS,
)
_MOMENTUM = {
  'server_optimizer': 'sgd',
  'server_learning_rate': 1.0,
  'server_momentum': 0.9,
}
_ADAM = {'server_optimizer': 'adam', 'server_learning_rate': 0.003}
# Clients' held-out examples, which choose the rate: settings say of how many clients.
_HELD_OUT = {'client_test_fraction': 0.1}
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
  'evaluate_clients': 95,
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
    | {'negatives': 3, 'evaluate_clients': 50, **_MOMENTUM},
    ('fedmlh', 'negonly', 'fednova', 'fedvc', 'fedams', 'fedprox'),
  ),
  'omniglot': (
    'omniglot',
    {'clients_per_round': 8, 'batch_size': 32, 'steps_per_round': 11}
    | {'rounds': 200, 'evaluate_clients': 480, **_ADAM},
    ('turbosvm',),
  ),
  'landmarks': (
    'glyphs-landmarks',
    {'clients_per_round': 8, 'batch_size': 32, 'steps_per_round': 32}
    | {'rounds': 100, 'evaluate_clients': 300, **_ADAM},
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
  values = {**_HELD_OUT, **shared, 'rounds': rounds or shared['rounds']}
  values['eval_every'] = max(values['rounds'] // 10, 1)
  if algorithm == 'fedvc':  # As many batches as others' clients take.
    steps = values['steps_per_round'] / values['clients_per_round']
    values['virtual_client_size'] = values['batch_size'] * round(steps)
  kept = {*_MOMENTUM} if algorithm in _OF_SERVERS else set()
  known = {*experiment.resolve(task, algorithm)['hyperparameters']} - kept
  if 'server_optimizer' in known:  # It decides which others there are.
    server = {'server_optimizer': values['server_optimizer']}
    known = {*experiment.resolve(task, algorithm, server)['hyperparameters']}
  return {
    name: value
    for name, value in values.items()
    if name not in kept and (name in known or name not in _OF_SOME)
  }


def searched(setting: str, algorithm: str) -> tuple[str, list[float]]:
  """Returns the name of the rate that is searched, and its values."""
  given = changes(setting, algorithm)
  found = experiment.resolve(_SETTINGS[setting][0], algorithm, given)
  values = found['hyperparameters']
  is_adam = values.get('server_optimizer', 'sgd') != 'sgd'
  name = f'{"server" if is_adam else "client"}_learning_rate'
  return name, [round(values[name] * factor, 9) for factor in _FACTORS]


def best_rate(
  rates: Sequence[float], score: Callable[[float], float]
) -> float | None:
  """Returns the rate with the best score, between worse ones; None: all diverged.

  It begins with the three in the middle. Of equal ones it takes that nearest to the
  middle, the smaller first. -inf is the score of a run that diverged.
  """
  middle, scores = len(rates) // 2, {}
  places = [middle - 1, middle, middle + 1]
  while places:
    scores |= {place: score(rates[place]) for place in places}
    best = max(
      sorted(scores),
      key=lambda p: (scores[p], -abs(p - middle) * math.isfinite(scores[p])),
    )
    places = [
      place
      for place in (best - 1, best + 1)
      if 0 <= place < len(rates) and place not in scores
    ]
  return rates[best] if math.isfinite(scores[best]) else None


def _run(values, setting, algorithm, rate, seed) -> plan.Run:
  given = {
    **changes(setting, algorithm, values.rounds),
    searched(setting, algorithm)[0]: rate,
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


def _train(run: plan.Run) -> bool:
  """Trains a run that is not finished, in this process; False if it diverged."""
  if not training.is_finished(run):
    print(f'\n{run.folder}', flush=True)
    experiment.install_runtime(run.config)
    data = (run.config[name] for name in ('task', 'data_dir', 'options'))
    try:
      loaded = _loaded(*map(json.dumps, data))
      experiment.with_data(run.config, loaded).run(run.folder)
    except errors.DivergedError as e:
      print(f'diverged: {e}')
      return False
  return True


def train(
  values, setting: str, algorithm: str
) -> tuple[float, list[run_files.Run]]:
  """Trains the runs of a method; returns its rate, nan without any, and its seeds."""

  def score(rate):
    run = _run(values, setting, algorithm, rate, 0)
    if not _train(run):
      return -math.inf
    found = run_files.read_run(run.folder).summary['final'][_CHOOSES]
    return -math.inf if found is None else found

  rate = best_rate(searched(setting, algorithm)[1], score)
  if rate is None:
    return math.nan, []
  runs = [_run(values, setting, algorithm, rate, seed) for seed in _SEEDS]
  done = [run for run in runs if _train(run)]
  return rate, [run_files.read_run(run.folder) for run in done]


def seconds(values, setting: str) -> dict[str, float]:
  """Returns the median seconds of a round of each method that was measured."""
  found, order = {}, methods(setting)
  # What is first is slower, and does not count.
  for label, name in [('first', order[0]), *zip(order, order, strict=True)]:
    _, rates = searched(setting, name)
    run = _run(values, setting, name, rates[len(rates) // 2], 0)
    given = {**run.values, 'rounds': 24, 'eval_every': 24}
    config = experiment.resolve(run.config['task'], name, {**given, 'seed': 0})
    folder = values.output / setting / 'seconds' / label
    short = plan.Run(given, config, folder)
    if training.is_finished(short) or (values.seconds and _train(short)):
      measured = run_files.read_run(folder).metrics
      found[name] = float(measured['seconds'][measured['round'] > 4].median())
  return found


def at_budget(
  metrics: pd.DataFrame, spent: pd.Series, budget: float, score: str
) -> float:
  """Returns a score at a budget, on the line between the evaluations beside it."""
  rows = metrics[score].notna()
  return float(np.interp(budget, spent[rows], metrics[score][rows]))


def first_round(metrics: pd.DataFrame, score: str, value: float) -> float:
  """Returns the round in which a score reaches a value, on such a line; inf: none."""
  found = metrics[metrics[score].notna()]
  reached = np.flatnonzero(found[score] >= value)
  if not reached.size:
    return math.inf
  last = slice(max(reached[0] - 1, 0), reached[0] + 1)
  return float(np.interp(value, found[score][last], found['round'][last]))


def lines(values, setting: str) -> list[dict[str, Any]]:
  """Trains the runs of a setting, and returns a line for each method."""
  trained = {name: train(values, setting, name) for name in methods(setting)}
  return compared(setting, trained, seconds(values, setting))


def compared(
  setting: str, trained, took: dict[str, float]
) -> list[dict[str, Any]]:
  """Returns a line for each method of its rate and runs; `took`: seconds a round."""
  score = tasks.get(_SETTINGS[setting][0]).metrics[0]
  spent = {
    'rounds': lambda name, run: run.metrics['round'],
    'bytes': lambda name, run: targets.spent(run.metrics, 'bytes'),
    'seconds': lambda name, run: (
      took.get(name, math.nan) * run.metrics['round']
    ),
  }
  found = [
    {
      'setting': setting,
      'method': name,
      'rate': searched(setting, name)[0],
      'value': rate,
      'seeds': len(runs),
    }
    for name, (rate, runs) in trained.items()
  ]
  for unit, of in spent.items():
    budget = min(
      (
        of(name, run).iloc[-1]
        for name, (_, runs) in trained.items()
        for run in runs
        if name not in _NO_CLIENTS and math.isfinite(of(name, run).iloc[-1])
      ),
      default=math.nan,
    )
    for line in found:
      name = line['method']
      _, runs = trained[name]
      # Who sends nothing is not compared by bytes.
      is_compared = len(runs) == len(_SEEDS) and of(name, runs[0]).iloc[-1] > 0
      scores = [math.nan] * len(_SEEDS)
      if is_compared:
        scores = [
          at_budget(run.metrics, of(name, run), budget, score) for run in runs
        ]
      line[f'{score} %, {unit}'] = 100 * float(np.mean(scores))
      line[f'std, {unit}'] = 100 * float(np.std(scores, ddof=1))
      line[f'equal {unit}'] = budget
  _, best = trained.get('centralized', (math.nan, []))
  ends = [run.metrics[score].iloc[-1] for run in best]
  for line in found:
    _, runs = trained[line['method']]
    line['MB to a client'] = line['rounds to 90 %'] = math.nan
    if runs and ends:
      aim = 0.9 * np.mean(ends)
      rounds = [first_round(run.metrics, score, aim) for run in runs]
      rounds += [math.inf] * (len(_SEEDS) - len(runs))
      line['rounds to 90 %'] = float(np.mean(rounds))
    if runs:
      line['MB to a client'] = (
        runs[0].metrics['bytes_down_per_client'].mean() / 1e6
      )
    line['seconds a round'] = took.get(line['method'], math.nan)
  return found


def runs(values, setting: str) -> list[dict[str, Any]]:
  """Returns a line for each finished run: what it had, spent and scored by tenths."""
  score, found = tasks.get(_SETTINGS[setting][0]).metrics[0], []
  for name in methods(setting):
    rate, rates = searched(setting, name)
    each = [
      (value, seed, _run(values, setting, name, value, seed))
      for value in rates
      for seed in _SEEDS
    ]
    for value, seed, run in each:
      if not training.is_finished(run):
        continue
      read = run_files.read_run(run.folder)
      held_out = read.summary['final'][_CHOOSES]
      line = {'setting': setting, 'method': name, 'rate': rate, 'value': value}
      line |= {'seed': seed, 'rounds': read.summary['rounds']}
      line['held out %'] = math.nan if held_out is None else 100 * held_out
      line['MB to clients'] = (
        targets.spent(read.metrics, 'bytes').iloc[-1] / 1e6
      )
      scores = read.metrics[score].dropna().iloc[-10:]  # Those after round 0.
      line |= {
        f'{score} %, {tenth}/10': 100 * reached
        for tenth, reached in enumerate(scores, 1)
      }
      found.append(line)
  return found


def pivot(table: pd.DataFrame, budget: str) -> pd.DataFrame:
  """Returns methods by settings, cells such as '64.0 ± 1.2', the best with ' *'.

  A method with too few seeds has 'diverged', and one that is not compared nothing.
  """
  [column] = [name for name in table if name.endswith(f'%, {budget}')]
  cells = table.pivot(index='method', columns='setting', values=column)
  spread = table.pivot(
    index='method', columns='setting', values=f'std, {budget}'
  )
  shown = pd.DataFrame(index=cells.index)
  seeds = table.pivot(index='method', columns='setting', values='seeds')
  clients = ~cells.index.isin(_NO_CLIENTS)
  for name in pd.unique(table['setting']):
    best = cells[name][clients].max()
    shown[name] = [
      f'{mean:.1f} ± {std:.1f}' + ' *' * bool(is_of_clients and mean == best)
      if not math.isnan(mean)
      else 'diverged' * (count < len(_SEEDS))
      for mean, std, count, is_of_clients in zip(
        *(cells[name], spread[name], seeds[name], clients), strict=True
      )
    ]
  return _in_order(shown)


def speed(table: pd.DataFrame) -> pd.DataFrame:
  """Returns methods by settings, cells of rounds to 90 % such as '12.3' or '>60'."""
  shown = {}
  for name, rows in table.groupby('setting', sort=False):
    rows = rows.set_index('method')
    most = f'>{rows["equal rounds"].max():g}'
    cell = lambda r, most=most: most if math.isinf(r) else f'{r:.1f}'
    shown[name] = rows['rounds to 90 %'].map(cell, na_action='ignore')
  return _in_order(pd.DataFrame(shown).rename_axis('method'))


def _in_order(shown: pd.DataFrame) -> pd.DataFrame:
  order = [name for name in _METHODS if name in shown.index]
  return shown.loc[order].reset_index()


def draw(table: pd.DataFrame, path: pathlib.Path) -> None:
  """Draws a panel for each setting: scores after equal rounds, and at equal bytes."""
  from tff_xc.report import methods as names
  from tff_xc.report import pictures

  settings = pd.unique(table['setting'])
  order = [name for name in _METHODS if (table['method'] == name).any()][::-1]
  columns = min(len(settings), 3)
  size = (3.25 * max(columns, 2), 4.6 * -(-len(settings) // columns))
  figure, axes = pictures.panels(len(settings), columns, size)
  for ax, setting in zip(axes, settings, strict=False):
    rows = table[table['setting'] == setting]
    places = [order.index(name) for name in rows['method']]
    colours = [names.METHODS[name].colour for name in rows['method']]
    for budget, face in (('rounds', colours), ('bytes', 'none')):
      [column] = [name for name in table if name.endswith(f'%, {budget}')]
      ax.scatter(rows[column], places, 28, face, edgecolors=colours)
    ax.set_yticks(
      range(len(order)), [names.title(name) for name in order], fontsize=7
    )
    pictures.label(
      ax, setting, f'{column.partition(",")[0]}\n(hollow: at equal bytes)', ''
    )
  pictures.save(figure, path)


def _names(known: Sequence[str]) -> Callable[[str], list[str]]:
  """Returns the type of a flag of some of these names, with commas between them."""

  def names(text):
    found = text.split(',')
    for name in found:
      if name not in known:
        raise argparse.ArgumentTypeError(
          f'there is no {name}; there are {", ".join(known)}'
        )
    return found

  return names


def main() -> None:
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('output', type=pathlib.Path, help='directory of all runs')
  parser.add_argument(
    '--settings', type=_names([*_SETTINGS]), default=[*_SETTINGS]
  )
  parser.add_argument(
    '--methods',
    type=_names(_METHODS),
    help='train these, where a setting has them, and make no tables',
  )
  parser.add_argument(
    '--rounds', type=int, default=0, help="for a trial; default: each setting's"
  )
  parser.add_argument(
    '--seconds',
    action='store_true',
    help='measure seconds of a round, on a computer that does nothing else',
  )
  values = parser.parse_args()
  if values.methods and values.seconds:
    parser.error('--seconds is of all methods in turn; leave out --methods')
  try:
    if values.methods:
      for setting in values.settings:
        for name in methods(setting):
          if name in values.methods:
            train(values, setting, name)
    else:
      _tables(values)
  except errors.InputError as e:
    parser.exit(2, f'error: {e}\n')


def _tables(values) -> None:
  """Trains what is missing, and writes the tables and the picture."""
  path = values.output / 'methods.csv'
  table = _read(path)
  if unknown := {*table.get('setting', [])} - {*_SETTINGS}:
    told = ', '.join(sorted(map(str, unknown)))
    raise errors.InputError(
      f'{path} has the settings {told}, which this tool does not have; move it'
    )
  for setting in values.settings:
    table = _replaced(path, table, setting, lines(values, setting))
    of_runs = values.output / 'methods_runs.csv'
    _replaced(of_runs, _read(of_runs), setting, runs(values, setting))
  for budget in ('rounds', 'bytes', 'seconds'):
    if table[f'equal {budget}'].notna().any():
      shown = pivot(table, budget)
      shown.to_csv(values.output / f'methods_{budget}.csv', index=False)
      print(f'\nequal {budget}\n{shown.to_string(index=False)}')
  speed(table).to_csv(values.output / 'methods_speed.csv', index=False)
  draw(table, values.output / 'methods.png')


def _read(path: pathlib.Path) -> pd.DataFrame:
  return pd.read_csv(path) if path.exists() else pd.DataFrame()


def _replaced(
  path: pathlib.Path, table: pd.DataFrame, setting: str, measured
) -> pd.DataFrame:
  """Returns and writes a table with a setting's lines replaced by those measured."""
  if len(table):
    table = table[table['setting'] != setting]
  table = pd.concat([table, pd.DataFrame(measured)], ignore_index=True)
  place = lambda names: names.map([*_SETTINGS].index)
  table = table.sort_values('setting', kind='stable', key=place)
  table.to_csv(path, index=False, float_format='%.6g')
  return table


if __name__ == '__main__':
  main()
