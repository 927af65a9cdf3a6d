"""The split of a long list, in small; in full: `launch.benchmarks.listings`."""

from launch.benchmarks import listings


def test_sizes_have_their_sum_and_fall():
  found = listings.sizes(1_000, 30, 2.0)
  assert found.sum() == 1_000
  assert found.min() >= 1
  assert found[0] > 5 * found[-1]


def test_a_long_list_is_split(tmp_path):
  found = listings.measure(tmp_path, 141_971, 218)
  assert 5e7 < found['peak'] < 2e9
  assert found['clients'] > 5
  assert 500 < found['examples'] < found['rows'] == 141_971
