"""Compares the bytes sent with tensors' sizes and with the papers' figures."""

import numpy as np
import pytest

from tff_xc.measure import communication

SOP = 11_318
LANDMARKS = 2_028
# The backbone that reproduces the paper's shares and savings (spec, 1.1).
BACKBONE = 3_685_000


def tensor_bytes(*tensors):
  return sum(t.nbytes for t in tensors)


def both_ways(sizes, *rows):
  return communication.bytes_down(sizes, rows[0]) + communication.bytes_up(
    sizes, *rows
  )


def test_bytes_are_those_of_the_tensors_that_cross():
  encoder = [np.zeros((3, 3, 1, 32), np.float32), np.zeros(32, np.float32)]
  ids = np.zeros(109, np.int32)
  rows = np.zeros((109, 64), np.float32)
  biases = np.zeros(109, np.float32)
  weight = np.float32(20)
  sizes = communication.MessageSizes(tensor_bytes(*encoder), 64 * 4 + 4)
  assert communication.bytes_down(sizes, 109) == tensor_bytes(
    *encoder, rows, biases
  )
  assert communication.bytes_up(sizes, 109) == tensor_bytes(
    ids, *encoder, ids, rows, biases, weight
  )


def test_all_rows_travel_without_ids():
  table = np.zeros((964, 64), np.float32)
  sizes = communication.MessageSizes(1000, 64 * 4)
  assert communication.bytes_down(sizes, 964) == 1000 + table.nbytes
  assert communication.bytes_up(sizes, 964, True) == 1000 + table.nbytes + 4
  assert communication.byte_saving(sizes, both_ways(sizes, 964, True), 964) == 0
  assert communication.byte_saving(sizes, both_ways(sizes, 964), 964) < 0


def test_byte_saving_counts_both_directions():
  sizes = communication.MessageSizes(encoder_bytes=100, row_bytes=40)
  # 5 of 10 rows: down 100 + 200; up 20 + 100 + 20 + 200 + 4. All: 500 + 504.
  saving = communication.byte_saving(sizes, both_ways(sizes, 5), 10)
  assert saving == pytest.approx(1 - (300 + 344) / (500 + 504))


def test_feature_rows_travel_with_ids_like_class_rows():
  table = np.zeros((50, 8), np.float32)
  whole = communication.MessageSizes(1000 + table.nbytes, 64 * 4)
  sizes = communication.with_feature_rows(whole, *table.shape)
  ids, rows = np.zeros(7, np.int32), np.zeros((7, 8), np.float32)
  down = communication.bytes_down(sizes, 3, feature_rows=7)
  assert down - communication.bytes_down(sizes, 3) == rows.nbytes
  up = communication.bytes_up(sizes, 3, feature_rows=7)
  assert up - communication.bytes_up(sizes, 3) == rows.nbytes + 2 * ids.nbytes
  # The saving applies to the table, too.
  all_sent = communication.bytes_down(whole, 9) + communication.bytes_up(
    whole, 9, True
  )
  saving = communication.byte_saving(sizes, down + up, 9)
  assert saving == pytest.approx(1 - (down + up) / all_sent)


def test_rows_that_stay_fixed_are_asked_for_but_not_sent():
  sizes = communication.MessageSizes(encoder_bytes=100, row_bytes=40)
  assert communication.bytes_up(sizes, 5, sends_rows=False) == 20 + 100 + 4


@pytest.mark.parametrize(
  ('num_classes', 'published'), [(SOP, 0.164), (LANDMARKS, 0.0340)]
)
def test_last_layer_shares_of_figure_8(num_classes, published):
  share = communication.last_layer_share(num_classes, 64, BACKBONE)
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
  saving = communication.parameter_saving(rows, num_classes, dim, BACKBONE)
  assert saving == pytest.approx(published, abs=0.0005)


def test_saving_in_bytes_approaches_the_papers_where_ids_are_small():
  sizes = communication.MessageSizes(BACKBONE * 4, 1280 * 4)
  in_bytes = communication.byte_saving(sizes, both_ways(sizes, 100), SOP)
  in_parameters = communication.parameter_saving(100, SOP, 1280, BACKBONE)
  assert in_parameters - 1e-4 < in_bytes < in_parameters


def test_class_parameters_sent():
  assert communication.class_parameters_sent(95, 64) == 6080
  assert communication.class_parameters_sent(109.5, 64) == 7008


def test_negative_sizes_are_refused():
  with pytest.raises(ValueError, match='row_bytes is negative'):
    communication.MessageSizes(1, -4)
