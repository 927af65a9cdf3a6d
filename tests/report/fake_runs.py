"""Writes small run directories in the form of `launch.train`."""

import json
import pathlib
from typing import Any

import numpy as np

COLUMNS = (
  'round',
  'loss',
  'local_accuracy',
  'top1',
  'map@10',
  'map@r',
  'bytes_down_per_client',
  'bytes_up_per_client',
  'class_rows',
  'clients',
  'seconds',
)


# Top-1 of the three seeds of FedSS in the fixture `runs`.
TOP1 = (0.50, 0.53, 0.47)


def write_run(
  path: pathlib.Path,
  algorithm: str = 'fedss',
  seed: int = 0,
  top1: float = 0.5,
  rows: float | None = 109.0,
  rounds: int = 20,
  finished: bool = True,
  initial: bool = False,
  emd: float | None = None,
  settings: dict[str, Any] | None = None,
  **hyperparameters: Any,
) -> pathlib.Path:
  """Writes a run whose accuracy rises to `top1`, and that is evaluated every second round.

  With `initial`, the initial model was also evaluated, as round 0.
  """
  path.mkdir(parents=True)
  config = {
    'task': 'omniglot',
    'algorithm': algorithm,
    'seed': seed,
    'rounds': rounds,
    'options': {'embedding_dim': 64},
    'run_dir': str(path),
    'versions': {'python': f'3.11.{seed}'},
    'git_revision': f'{seed:07x}',
    'hyperparameters': {'client_learning_rate': 0.1} | hyperparameters,
  } | (settings or {})
  (path / 'config.json').write_text(json.dumps(config))
  metrics = metrics_csv(seed, top1, rows, rounds, initial)
  (path / 'metrics.csv').write_text(metrics)
  if finished:
    scores = {'top1': top1, 'map@10': top1 / 3, 'map@r': top1 / 2, 'train_top1': None}

    def sent(base, each):
      return None if rows is None else base + each * rows

    summary = {
      'final': scores,
      'best': scores,
      'rounds': rounds,
      'emd': emd,
      'bytes_down_per_client_round': sent(100_000, 256),
      'bytes_up_per_client_round': sent(100_004, 264),
      'class_rows_requested_mean': rows,
      'seconds_per_round_median': 0.5 + seed / 10,
      'bytes_saving_vs_fullsoftmax': sent(1, -1 / 964),
    }
    (path / 'summary.json').write_text(json.dumps(summary))
  return path


def metrics_csv(seed, top1, rows, rounds, initial=False) -> str:
  rng = np.random.default_rng(seed)
  lines = [','.join(COLUMNS)]
  if initial:
    scores = {'round': 0, 'top1': 0.001, 'map@10': 0.002, 'map@r': 0.003}
    lines.append(','.join(str(scores.get(name, '')) for name in COLUMNS))
  for r in range(1, rounds + 1):
    score = top1 * (1 - np.exp(-4 * r / rounds)) + rng.normal(0, 0.01)
    scores, sent = ['', 'nan', ''], ['', '', '']
    if r % 2 == 0:
      scores = [score, score / 3, score / 2]
    if rows is not None:
      sent = [100_000 + 256 * rows, 100_004 + 264 * rows, rows + rng.normal()]
    cells = [r, 7 * (1 - score), min(score * 1.2, 1), *scores, *sent, 32, 0.5]
    lines.append(','.join(map(str, cells)))
  return '\n'.join(lines) + '\n'
