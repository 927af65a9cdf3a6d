"""The table of model files, of one small network."""

import pytest

from launch.benchmarks import formats


@pytest.mark.slow
@pytest.mark.parametrize(
  ('form', 'off'), [('saved_model', 1e-4), ('tflite', 1e-4)]
)
def test_a_row_has_a_size_times_and_no_difference(form, off):
  name, told, size, batch, alone, difference = formats.measure('CNN', form, '')
  assert (name, told) == ('CNN', form)
  assert size.endswith('kB')
  assert float(batch) > 0
  assert float(alone) > 0
  assert float(difference) < off


def test_networks_have_raw_examples():
  for _, _, _, description in formats.NETWORKS.values():
    first = next(iter(formats.raw(description, 3).values()))
    assert len(first) in (3, 3 * 40)
