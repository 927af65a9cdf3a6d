"""Does personalization change the order of the algorithms? Trains and makes the table.

  .venv/bin/python tools/personalization.py OUT [--tasks=omniglot] [--rounds=2] ...

Every run is OUT/TASK/ALGORITHM/seedS of launch.train; launch.evaluate scores all its
clients before and after local steps of their own. What is done is not done again.
OUT/personalization.csv has a line for each task, algorithm, part of the clients, and
what moves; means of clients' top-1 in %, and their sample std over seeds. The rank is
among the algorithms of a task.
"""

import argparse
import json
import pathlib
import subprocess
import sys

import pandas as pd

# Of each task: rounds, and algorithms with settings of their own.
_STUDY = {
  'omniglot': (
    1000,
    {'fedavg': [], 'fedprox': [], 'fedss': [], 'negonly': [], 'turbosvm': []}
    | {'moon': [], 'centralized': []},
  ),
  'cifar10-dirichlet': (
    1000,
    {'fedavg': [], 'fedavgm': [], 'fedprox': [], 'fedir': [], 'fedvc': []}
    | {'feddyn': [], 'moon': [], 'centralized': []},
  ),
  'glyphs-landmarks': (
    500,
    {'fedavg': [], 'fedprox': [], 'fedss': [], 'negonly': [], 'fedaws': []}
    | {'centralized': []},
  ),
}
_CLIENTS = ['--client_test_fraction=0.25', '--unseen_clients=0.1']


def _launch(command: str, *arguments: str) -> None:
  print(f'python -m launch.{command}', *arguments, flush=True)
  called = [sys.executable, '-m', f'launch.{command}', *arguments]
  subprocess.run(called, check=True)


def _scores(run_dir: pathlib.Path, steps: int, part: str, train) -> dict:
  """Returns `clients` of evaluation.json, of a run that may have to be made."""
  kept = run_dir.with_name(f'{run_dir.name}_{part}_{steps}.json')
  if not kept.exists():
    _launch('train', *train, f'--run_dir={run_dir}')
    how = [f'--personalize={steps}', f'--personalize_part={part}']
    _launch('evaluate', f'--run_dir={run_dir}', *how)
    kept.write_text((run_dir / 'evaluation.json').read_text())
  return json.loads(kept.read_text())['clients']


def _rows(values) -> list[dict]:
  rows = []
  for task in values.tasks.split(','):
    rounds, algorithms = _STUDY[task]
    rounds = values.rounds or rounds
    for algorithm, settings in algorithms.items():
      for seed in values.seeds.split(','):
        train = [f'--task={task}', f'--algorithm={algorithm}', *settings]
        train += [f'--rounds={rounds}', f'--eval_every={rounds}', *_CLIENTS]
        train += [f'--seed={seed}']
        run_dir = values.output / task / algorithm / f'seed{seed}'
        for moves in values.parts.split(','):
          found = _scores(run_dir, values.steps, moves, train)
          for part in ('trained', 'unseen'):
            scores = {
              'before': 100 * found[part]['top1_mean'],
              'after': 100 * found[part]['top1_personalized_mean'],
            }
            row = {'task': task, 'algorithm': algorithm, 'moves': moves}
            rows.append(row | {'clients': part, **scores})
  return rows


def _table(rows: list[dict]) -> pd.DataFrame:
  by = ['task', 'algorithm', 'moves', 'clients']
  grouped = pd.DataFrame(rows).groupby(by, sort=False)
  table = grouped.mean().reset_index()
  for name in ('before', 'after'):
    table[f'{name}_std'] = grouped[name].std().to_numpy()
    of_task = table.groupby(['task', 'moves', 'clients'])[name]
    table[f'{name}_rank'] = of_task.rank(ascending=False, method='min')
  return table.sort_values(['task', 'clients', 'moves', 'before_rank'])


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument('output', type=pathlib.Path)
  parser.add_argument('--tasks', default=','.join(_STUDY))
  parser.add_argument('--seeds', default='0,1,2')
  parser.add_argument('--rounds', type=int, default=0)
  parser.add_argument('--steps', type=int, default=5)
  parser.add_argument('--parts', default='all,rows')
  values = parser.parse_args()
  table = _table(_rows(values))
  table.to_csv(
    values.output / 'personalization.csv', index=False, float_format='%.4f'
  )
  print(table.to_string(index=False, float_format='{:.1f}'.format))


if __name__ == '__main__':
  main()
