"""Compares message sizes with the sizes of tensors and with the papers' numbers."""

import numpy as np
import pytest
import tensorflow as tf

from tests import registered, tiny
from tff_xc import heads
from tff_xc.algorithms import registry
from tff_xc.measure import communication


def tensor_bytes(*tensors):
  return sum(t.nbytes for t in tensors)


def messages(name, model=registered.DENSE, max_features=0):
  return communication.messages(registered.algorithm(name, model, max_features))


def down_and_up(sizes, **rows):
  columns = sizes.of_round(rows, rows)
  return columns['bytes_down_per_client'], columns['bytes_up_per_client']


def test_bytes_are_those_of_the_tensors_that_cross():
  encoder = [np.zeros((tiny.FEATURES, tiny.DIM), np.float32), np.zeros(tiny.DIM, np.float32)]
  ids = np.zeros(9, np.int32)
  rows = np.zeros((9, tiny.DIM), np.float32)
  biases = np.zeros(9, np.float32)
  weight = np.float32(20)
  sizes = messages('fedss', tiny.model(registered.N, heads.LinearHead()))
  down, up = down_and_up(sizes, **{'class': 9})
  assert down == tensor_bytes(*encoder, rows, biases)
  assert up == tensor_bytes(ids, *encoder, ids, rows, biases, weight)
  peak = sizes.of_round({'class': 5}, {'class': 9})['client_parameters_peak']
  assert peak == tensor_bytes(*encoder, rows, biases) / 4


def test_what_travels_without_ids_without_rows_and_without_clients():
  n, encoder = registered.N, 4 * (tiny.FEATURES + 1) * tiny.DIM
  table = np.zeros((n, tiny.DIM), np.float32)
  sizes = messages('fullsoftmax')
  sent = down_and_up(sizes, **{'class': n})
  assert sent == (encoder + table.nbytes, encoder + table.nbytes + 4)
  assert sizes.saving(sum(sent)) == 0
  selecting = messages('fedss')
  assert selecting.saving(sum(down_and_up(selecting, **{'class': n}))) < 0
  # With 5 rows, clients receive 72 + 60 bytes and send 20 + 72 + 20 + 60 + 4. With all 29 rows,
  # they receive 72 + 348 and send 4 more.
  saving = selecting.saving(sum(down_and_up(selecting, **{'class': 5})))
  assert saving == pytest.approx(1 - (132 + 176) / (420 + 424))
  assert down_and_up(messages('fedaws_baseline2'), **{'class': 5})[1] == 20 + encoder + 4
  assert down_and_up(messages('centralized'), **{'class': n}) == (0, 0)


@pytest.mark.parametrize(
  ('name', 'given'),
  [
    *((name, {}) for name in registry.ALGORITHMS),
    *((name, {'trainable': 'head'}) for name in ('fedss', 'fedmlh')),
  ],
)
def test_savings_compare_with_all_rows_of_the_task(name, given):
  """Computes what FullSoftmax sends on the task, whatever the algorithm trains."""
  made = registered.algorithm(name, hash_buckets=50, **given)
  sizes = communication.messages(made)
  rows = {'class': 200 if name == 'fedmlh' else registered.N}
  sent = sum(down_and_up(sizes, **rows))
  if not registry.get(name).has_clients:
    assert sizes.saving(sent) is None
    return
  encoder = (tiny.FEATURES + 1) * tiny.DIM * (not given)
  full = 2 * 4 * (encoder + registered.N * tiny.DIM) + 4
  assert sizes.saving(sent) == pytest.approx(1 - sent / full)
  if name == 'fedmlh':  # FedMLH has four copies of the encoder, and 200 buckets with a bias each.
    assert sent == 2 * 4 * (4 * encoder + 200 * (tiny.DIM + 1)) + 4


def test_feature_rows_travel_with_ids_like_class_rows():
  sizes = messages('fedss', registered.SPARSE, 8)
  ids, rows = np.zeros(7, np.int32), np.zeros((7, 6), np.float32)
  without = down_and_up(sizes, **{'class': 3}, feature=0)
  down, up = down_and_up(sizes, **{'class': 3}, feature=7)
  assert down - without[0] == rows.nbytes
  assert up - without[1] == rows.nbytes + 2 * ids.nbytes
  # FullSoftmax also sends the whole table.
  everything = registered.SPARSE.weight_specs()
  numbers = sum(s.shape.num_elements() for s in tf.nest.flatten(everything))
  all_sent = 8 * numbers + 4
  assert sizes.saving(down + up) == pytest.approx(1 - (down + up) / all_sent)
