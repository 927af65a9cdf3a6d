"""Draws the pictures of docs/privacy.md and docs/runtime.md from kept results and runs.

  .venv/bin/python tools/privacy_pictures.py attacks docs/results/glyphs-attacks.csv
  .venv/bin/python tools/privacy_pictures.py epsilon docs/results/*-dp.csv
  .venv/bin/python tools/privacy_pictures.py bytes RUN_DIR...

writes docs/attacks.png, docs/epsilon.png or docs/accuracy_bytes.png.

attacks: scores of each defence against each attack. epsilon: scores against the epsilon
that the same noise on the mean of the clients' updates has with 10,000 of a million
clients a round, which `epsilon` also writes, as docs/results/measured/epsilon.csv.
bytes: as `launch.compare --over=bytes`, with a further line for each method without
compression whose clients request class rows: the same run, had these been fetched by
private information retrieval, whose bytes follow from a formula.
"""

import dataclasses
import math
import os
import pathlib
import re
import sys
from collections.abc import Iterator

import numpy as np
import pandas as pd

sys.path.insert(0, os.fspath(pathlib.Path(__file__).parents[1]))

from launch import compare
from tasks import registry as tasks
from tff_xc.algorithms import registry as algorithms
from tff_xc.measure import privacy_loss
from tff_xc.report import curves
from tff_xc.report import methods
from tff_xc.report import pictures
from tff_xc.report import run_files
from tff_xc.report import tables

_DOCS = pathlib.Path(__file__).parents[1] / 'docs'
_ATTACKS = ('none', 'flip_labels', 'scale', 'flip_signs')
_DEFENCES = ('none', 'clipping', 'median', 'trimmed_mean')
_MANY, _OF_THEM, _DELTA = 1_000_000, 10_000, 1e-7
_NUMBER = 4  # Bytes of a float32.


def attacks(path: str) -> None:
  """Draws bars: a group for each attack, a bar for each defence."""
  rows = {}
  for row in pd.read_csv(path).to_dict('records'):
    has = _flags(row)
    by = has.get('attack', 'none'), has.get('robust_aggregation', 'none')
    rows[by] = row
  figure, [ax] = pictures.panels(1, 1, (7.5, 4.2))
  width = 0.8 / len(_DEFENCES)
  for place, (defence, style) in enumerate(
    zip(_DEFENCES, pictures.styles(), strict=False)
  ):
    of = [rows[attack, defence] for attack in _ATTACKS]
    ax.bar(
      np.arange(len(_ATTACKS)) + place * width,
      [100 * row['top1_mean'] for row in of],
      width,
      yerr=[100 * row['top1_std'] for row in of],
      label=defence.replace('_', ' '),
      color=style['color'],
      error_kw={'lw': 1},
    )
  ax.set_xticks(
    np.arange(len(_ATTACKS)) + 1.5 * width,
    [attack.replace('_', ' ') for attack in _ATTACKS],
  )
  pictures.label(ax, '', '--attack, of a fifth of the clients', 'top-1 %')
  figure.legend(
    loc='outside upper center',
    ncols=4,
    frameon=False,
    title='--robust_aggregation',
  )
  pictures.save(figure, _DOCS / 'attacks.png')


def epsilon(*paths: str) -> None:
  """Draws a line for each algorithm and data set, and writes what it shows."""
  rows = [row for path in paths for row in _private_runs(pd.read_csv(path))]
  table = pd.DataFrame(rows)
  lines = {
    f'{methods.title(algorithm)}, {task}': list(
      zip(many['ε of a million'], many['top-1 %'], strict=True)
    )
    for (task, algorithm), many in table[table['z'] > 0].groupby(
      ['task', 'algorithm'], sort=False
    )
  }
  figure = curves.lines_figure(
    lines,
    '',
    'ε of the same noise with 10,000 of a million clients a round',
    'top-1 %',
  )
  pictures.save(figure, _DOCS / 'epsilon.png')
  text = table.drop(columns=['top-1 %', 'algorithm']).drop_duplicates()
  text = text[text['z'] > 0].map(
    lambda value: f'{value:.3g}' if isinstance(value, float) else value
  )
  text.to_csv(_DOCS / 'results/measured/epsilon.csv', index=False)


def _private_runs(given: pd.DataFrame) -> Iterator[dict]:
  for row in given.to_dict('records'):
    has = _flags(row)
    task, algorithm = has['task'], has['algorithm']
    usual = {
      **algorithms.get(algorithm).defaults,
      'clients_per_round': tasks.get(task).clients_per_round,
      **has,
    }
    noise = float(usual['dp_noise_multiplier']) if 'dp' in has else 0.0
    part = int(usual['clients_per_round'])
    scaled = noise * _OF_THEM / part
    sampling = privacy_loss.Sampling(privacy_loss.POISSON, _OF_THEM / _MANY)
    many = noise and privacy_loss.Accountant(scaled, sampling, _DELTA)
    yield {
      'task': task,
      'algorithm': algorithm,
      'z': noise,
      'ε': row['epsilon_mean'],
      'z of a million': scaled,
      'ε of a million': many and many.epsilon(int(row['rounds_mean'])),
      'top-1 %': 100 * row['top1_mean'],
    }


def bytes_(*directories: str) -> None:
  """Draws the runs that lie in the directories."""
  runs, labels = [], []
  for run in compare.collect(directories)['run']:
    given, label = run.hyperparameters, methods.title(run.algorithm)
    if is_compressed := given['compression'] != 'none':
      label += f', updates of {given["compression_bits"]} bits'
    runs.append(_both_ways(run, 0.0))
    labels.append(label)
    if 'negatives' in given and not is_compressed:
      runs.append(_both_ways(run, _retrieval(run)))
      labels.append(f'{label}, rows by private retrieval')
  figure = curves.compare_figure(
    tables.collect(runs, labels), ['top1'], over='bytes'
  )
  figure.axes[0].set_xlabel('bytes between the server and all clients')
  pictures.save(figure, _DOCS / 'accuracy_bytes.png')


def _both_ways(run: run_files.Run, more: float) -> run_files.Run:
  """Returns the run with all bytes, and `more` of a class row, as those down."""
  metrics = run.metrics
  total = metrics['bytes_down_per_client'] + metrics['bytes_up_per_client']
  total += more * metrics['class_rows']
  return dataclasses.replace(
    run, metrics=metrics.assign(bytes_down_per_client=total)
  )


def _retrieval(run: run_files.Run) -> float:
  """Returns the bytes by which private retrieval of a row exceeds its download.

  For one of n rows, of d numbers, each of two servers receives a key of 16 log2(n) bytes
  and sends d numbers.
  """
  row = _NUMBER * run.config['options']['embedding_dim']
  return 2 * (row + 16 * math.log2(run.config['data']['classes'])) - row


def _flags(row: dict) -> dict[str, str]:
  """Returns what the command of a kept row has: what differs from defaults."""
  return dict(re.findall(r'--(\w+)=(\S+)', row['command']))


if __name__ == '__main__':
  {'attacks': attacks, 'epsilon': epsilon, 'bytes': bytes_}[sys.argv[1]](
    *sys.argv[2:]
  )
