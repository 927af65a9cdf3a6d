"""An example of your own algorithm: a server step that gets rows before and after a round.

Copy the code between the lines of dashes, and its imports. The step limits the distance that a row
moves in a round, and counts the rows whose movement it shortens.
"""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tests import doubling, small_data
from tff_xc.algorithms import fedss
from tff_xc.experiment import training
from tff_xc.round import cohort

# ---------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Leash:
  """Limits the distance that a row moves in a round to `length`."""

  length: float
  on_all_rows = False
  metrics = ('rows_held_back',)

  def initialize(self, table_spec):
    return ()

  def next(self, state, rows, context):
    before = context.rows_before()
    way = tf.norm(rows - before, axis=1, keepdims=True)
    share = tf.minimum(1.0, tf.math.divide_no_nan(self.length, way))
    held_back = tf.reduce_sum(tf.cast(way > self.length, tf.float32))
    rows = before + share * (rows - before)
    return state, rows, {'rows_held_back': held_back}


def leashed(*, length, **arguments):
  """Returns FedSS with the server step `Leash`."""
  made = fedss.FedSS.made(**arguments)
  [table] = made.tables
  return made.with_table(dataclasses.replace(table, steps=(Leash(length),)))


# ---------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize('length', [1e-3, 1e3])
def test_rows_are_held_back(length, in_process, tmp_path):
  dataset, model = small_data.images()
  algorithm = leashed(length=length, model=model, max_positives=4, negatives=3)
  algorithm = dataclasses.replace(algorithm, sampling=cohort.UniformClients(3))
  training.train(algorithm, dataset, tmp_path / 'run', metrics=('top1', 'train_top1'), rounds=2)
  _, *rows = doubling.rows(tmp_path / 'run')  # The first row is for the initial model, round 0.
  held_back = [float(row['rows_held_back']) for row in rows]
  assert len(held_back) == 2
  requested = [float(row['class_rows']) for row in rows]
  assert np.all(held_back) == (length < 1)
  assert min(requested) >= 4
