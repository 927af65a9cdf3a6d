"""Compares the bytes sent with tensors' sizes and with the papers' figures."""

import dataclasses

import numpy as np
import pytest

from tff_xc.measure import communication

SOP = 11_318
LANDMARKS = 2_028
# The backbone that reproduces the paper's shares and savings (spec, 1.1).
BACKBONE = 3_685_000


def last_layer_share(num_classes, dim):
  """Returns n d / (n d + the encoder's parameters) (FedSS, fig. 8)."""
  return num_classes * dim / (num_classes * dim + BACKBONE)


def tensor_bytes(*tensors):
  return sum(t.nbytes for t in tensors)


def messages(encoder_bytes, row_bytes, num_rows, feature=None, **of_classes):
  tables = {
    'class': communication.TableSizes(num_rows, row_bytes, **of_classes)
  }
  if feature:
    tables['feature'] = feature
  return communication.Messages(encoder_bytes, tables)


def down_and_up(sizes, **rows):
  rows = {'class': 0, **rows}
  columns = sizes.of_round(rows, rows)
  return columns['bytes_down_per_client'], columns['bytes_up_per_client']


def test_bytes_are_those_of_the_tensors_that_cross():
  encoder = [np.zeros((3, 3, 1, 32), np.float32), np.zeros(32, np.float32)]
  ids = np.zeros(109, np.int32)
  rows = np.zeros((109, 64), np.float32)
  biases = np.zeros(109, np.float32)
  weight = np.float32(20)
  sizes = messages(tensor_bytes(*encoder), 64 * 4 + 4, 964)
  down, up = down_and_up(sizes, **{'class': 109})
  assert down == tensor_bytes(*encoder, rows, biases)
  assert up == tensor_bytes(ids, *encoder, ids, rows, biases, weight)
  peak = sizes.of_round({'class': 9}, {'class': 109})['client_parameters_peak']
  assert peak == tensor_bytes(*encoder, rows, biases) / 4


def test_what_travels_without_ids_without_rows_and_without_clients():
  table = np.zeros((964, 64), np.float32)
  sizes = messages(1000, 64 * 4, 964, selects=False)
  sent = down_and_up(sizes, **{'class': 964})
  assert sent == (1000 + table.nbytes, 1000 + table.nbytes + 4)
  assert sizes.saving(sum(sent)) == 0
  selecting = messages(1000, 64 * 4, 964)
  assert selecting.saving(sum(down_and_up(selecting, **{'class': 964}))) < 0
  # 5 of 10 rows: down 100 + 200; up 20 + 100 + 20 + 200 + 4. All: 500 + 504.
  sizes = messages(100, 40, 10)
  saving = sizes.saving(sum(down_and_up(sizes, **{'class': 5})))
  assert saving == pytest.approx(1 - (300 + 344) / (500 + 504))
  fixed = messages(100, 40, 10, sends_rows=False)
  assert down_and_up(fixed, **{'class': 5})[1] == 20 + 100 + 4
  pooled = dataclasses.replace(sizes, has_clients=False)
  assert down_and_up(pooled, **{'class': 10}) == (0, 0)
  assert pooled.saving(0) == 1


def test_feature_rows_travel_with_ids_like_class_rows():
  feature = communication.TableSizes(50, 32)
  sizes = messages(1000, 64 * 4, 9, feature)
  ids, rows = np.zeros(7, np.int32), np.zeros((7, 8), np.float32)
  without = down_and_up(sizes, **{'class': 3}, feature=0)
  down, up = down_and_up(sizes, **{'class': 3}, feature=7)
  assert down - without[0] == rows.nbytes
  assert up - without[1] == rows.nbytes + 2 * ids.nbytes
  # FullSoftmax sends the table, too.
  all_sent = 2 * (1000 + 9 * 64 * 4 + 50 * 32) + 4
  assert sizes.saving(down + up) == pytest.approx(1 - (down + up) / all_sent)


@pytest.mark.parametrize(
  ('num_classes', 'published'), [(SOP, 0.164), (LANDMARKS, 0.0340)]
)
def test_last_layer_shares_of_figure_8(num_classes, published):
  share = last_layer_share(num_classes, 64)
  assert share == pytest.approx(published, abs=0.0005 if share > 0.1 else 5e-5)


@pytest.mark.parametrize(
  ('rows', 'num_classes', 'dim', 'published'),
  [
    (100, SOP, 64, 0.163),
    (100, SOP, 1280, 0.790),
    (170, LANDMARKS, 1280, 0.379),
    # The paper prints 3.38 %, which is the whole layer's share.
    (170, LANDMARKS, 64, 0.031),
  ],
)
def test_parameter_savings_of_section_5(rows, num_classes, dim, published):
  saving = last_layer_share(num_classes, dim) * (1 - rows / num_classes)
  assert saving == pytest.approx(published, abs=0.0005)
  if dim == 1280:  # Where ids are small, the saving in bytes approaches it.
    sizes = messages(BACKBONE * 4, dim * 4, num_classes)
    in_bytes = sizes.saving(sum(down_and_up(sizes, **{'class': rows})))
    assert saving - 1e-4 < in_bytes < saving
