"""Does personalization change the order of the algorithms? Trains and makes the table.

  .venv/bin/python tools/personalization.py OUT [--tasks=omniglot] [--rounds=2] ...

Every run is OUT/TASK/ALGORITHM/seedS, as launch.train makes it, with the settings of
_STUDY. --clients of each part, the same of all runs, are then scored before and after
local steps of their own, as by launch.evaluate. What is done is not done again. Of each
task that is done OUT/personalization.csv has the means of clients' top-1 in %, ± the
sample std over seeds, and the rank among the task's algorithms.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import sys

import numpy as np
import pandas as pd

sys.path.insert(0, os.fspath(pathlib.Path(__file__).parents[1]))

from tasks import experiment
from tasks import registry as tasks

# Of each task: rounds, settings, and algorithms with settings of their own. Short runs
# of few clients: each of Omniglot takes about 80 seconds of a core.
_STUDY = {
  'omniglot': (
    300,
    {'clients_per_round': 8},
    {'fedadam': {}, 'fedss': {}, 'posonly': {}},
  ),
  'cifar10-dirichlet': (
    20,
    {'clients_per_round': 5, 'local_steps': 4, 'batch_size': 32}
    | {'client_learning_rate': 0.05},
    {'fedavg': {}, 'fedavgm': {}, 'fedir': {}},
  ),
  'glyphs-landmarks': (
    100,
    {'clients_per_round': 8, 'local_steps': 2},
    {'fedadam': {}, 'fedss': {}, 'posonly': {}},
  ),
}
_HELD_OUT = {'client_test_fraction': 0.25, 'unseen_clients': 0.1}
_BY = ['task', 'clients', 'algorithm']


def _chosen(part: np.ndarray, count: int) -> np.ndarray:
  """Returns bool [K]: `count` clients of each part, the same in every call."""
  random, chosen = np.random.default_rng(0), np.zeros(len(part), bool)
  for name in pd.unique(part):
    there = np.flatnonzero(part == name)
    chosen[random.permutation(there)[:count]] = True
  return chosen


def _scored(made, config, run_dir, values) -> list[dict]:
  """Returns means of clients' top-1 after a run: of each part, before and after."""
  from tff_xc.experiment import checkpoints
  from tff_xc.experiment import personalization
  from tff_xc.measure import client_scores
  from tff_xc.measure import evaluation
  from tff_xc.round import process as process_lib

  process = process_lib.build_process(made.algorithm, config['seed'])
  state, _, _ = checkpoints.load_newest(run_dir, process.initialize())
  weights = process.get_model_weights(state)
  evaluator = evaluation.Evaluator(
    made.algorithm.model, made.dataset, made.metrics
  )
  part = client_scores.clients(made.dataset)['part'].to_numpy()
  before = np.concatenate(
    [
      evaluator.of_clients(weights, held_out)
      for _, _, held_out in client_scores.parts(made.dataset)
    ]
  )
  before[~_chosen(part, values.clients)] = np.nan  # Left out.
  scores = {'global': before}
  for moves in values.parts.split(','):
    how = personalization.Personalization(values.steps, moves)
    given = made.algorithm, made.dataset, evaluator, state, weights, before
    scores[moves] = personalization.scores(how, *given)
  return [
    {'clients': name}
    | {of: 100 * np.nanmean(s[part == name]) for of, s in scores.items()}
    for name in pd.unique(part)
  ]


def _runs(task: str, values) -> list[dict]:
  rounds, shared, algorithms = _STUDY[task]
  rounds, rows, loaded = values.rounds or rounds, [], None
  for seed in map(int, values.seeds.split(',')):
    for algorithm, own in algorithms.items():
      run_dir = values.output / task / algorithm / f'seed{seed}'
      how = f'{rounds}_{values.steps}_{values.clients}_{values.parts}'
      kept = run_dir.with_name(f'seed{seed}_{how}.json')
      if not kept.exists():
        of_run = {'rounds': rounds, 'eval_every': rounds, 'seed': seed}
        changes = {**_HELD_OUT, **shared, **own, **of_run}
        print(f'--task={task} --algorithm={algorithm}', changes, flush=True)
        config = experiment.resolve(task, algorithm, changes)
        experiment.install_runtime(config)
        if loaded is None:
          of = tasks.get(task)
          loaded = of.load(config['data_dir'], config['options'])
        made = experiment.with_data(config, loaded)
        made = dataclasses.replace(made, metrics=made.metrics[:1])
        made.run(run_dir)
        found = _scored(made, config, run_dir, values)
        kept.write_text(json.dumps(found))
      for row in json.loads(kept.read_text()):
        rows.append({'task': task, 'algorithm': algorithm, **row})
  return rows


def _table(rows: list[dict]) -> pd.DataFrame:
  """Returns a line for each task, part of the clients, and algorithm."""
  grouped = pd.DataFrame(rows).groupby(_BY, sort=False)
  means, deviations = grouped.mean(), grouped.std()
  ranks = means.groupby(_BY[:2]).rank(ascending=False, method='min')
  table = pd.DataFrame(index=means.index)
  for name in means:
    pairs = zip(means[name], deviations[name], strict=True)
    table[f'{name} %'] = [f'{mean:.1f} ± {std:.1f}' for mean, std in pairs]
    table[f'rank, {name}'] = ranks[name].astype(int)
  order = [*_BY[:2], 'rank, global']
  return table.reset_index().sort_values(order, kind='stable')


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument('output', type=pathlib.Path)
  parser.add_argument('--tasks', default=','.join(_STUDY))
  parser.add_argument('--seeds', default='0,1,2')
  parser.add_argument('--rounds', type=int, default=0)
  parser.add_argument('--steps', type=int, default=5)
  parser.add_argument('--clients', type=int, default=60, help='of each part')
  parser.add_argument('--parts', default='all,rows')
  values, rows = parser.parse_args(), []
  for task in values.tasks.split(','):
    rows += _runs(task, values)
    table = _table(rows)
    table.to_csv(values.output / 'personalization.csv', index=False)
  print(table.to_string(index=False))


if __name__ == '__main__':
  main()
