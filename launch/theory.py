"""Compares FedMLH's theory with a task's labels. Imports TensorFlow."""

import os
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from tasks import registry as tasks
from tff_xc import errors
from tff_xc.measure import hashed_labels
from tff_xc.report import text_table
from tff_xc.report import theory_picture

# The probability of a total collision that Lemma 2 is asked to allow.
_FAILURE = 0.05


def run(config: Mapping[str, Any], output: str | os.PathLike) -> str:
  """Returns a table, and draws OUTPUT/theory.png.

  Args:
    config: of a FedMLH experiment, see `experiment.resolve`.
    output: the directory, created if necessary.

  Raises:
    errors.InputError: the data are missing or damaged, or `output` cannot be
      written.
  """
  load = tasks.get(config['task']).load
  dataset, _ = load(config['data_dir'], config['options'])
  values = config['hyperparameters']
  found = hashed_labels.theory(
    dataset, values['hash_tables'], values['hash_buckets']
  )
  title = (
    f'FedMLH on {config["task"]}: {len(found.label_counts):,} labels,'
    f' {found.num_tables} tables of {found.num_buckets:,} buckets'
  )
  path = pathlib.Path(output) / 'theory.png'
  try:
    path.parent.mkdir(parents=True, exist_ok=True)
    theory_picture.plot(found, title, path)
  except OSError as e:
    raise errors.InputError(
      f'{path.parent} cannot be written ({e.strerror}); name another --output'
    ) from e
  table = text_table.to_text(_rows(found), (0,), text_table.terminal_width())
  return f'{title}\n\n{table}picture: {path}\n'


def _rows(found: hashed_labels.Theory) -> list[list[str]]:
  sizes = len(found.label_counts), found.num_tables
  collisions = hashed_labels.total_collisions(*sizes, found.num_buckets)
  rare = ~found.is_frequent
  mean = lambda values: f'{values.mean():,.2f}' if values.size else '–'
  of_labels, of_buckets = found.pairs
  # A rounding error is no growth.
  grown = np.count_nonzero(of_buckets > of_labels + 1e-9)
  return [
    ['of', 'value'],
    ['least buckets that tell all labels apart with probability'
     f' {1 - _FAILURE:g} (Lemma 2)',
     f'{hashed_labels.least_buckets(*sizes, _FAILURE):,}'],
    ['labels that share all buckets with an earlier one', f'{collisions:,}'],
    ['infrequent labels, of less than 1 % of the training examples',
     f'{rare.sum():,}'],
    ['positive examples of an infrequent label, mean',
     mean(found.label_counts[rare])],
    ['of its buckets, mean, expected (Lemma 1, a bound)',
     mean(found.expected[rare])],
    ['of its buckets, mean', mean(found.observed[:, rare])],
    ['KL divergence of two clients over labels, mean', mean(of_labels)],
    ['over the buckets of a table, mean', mean(of_buckets)],
    ['pairs of clients and tables whose divergence grew (Theorem 2: none)',
     f'{grown:,} of {len(of_labels):,}'],
  ]  # fmt: skip
