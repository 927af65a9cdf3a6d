"""The papers' split rules on made-up files, in small; in full: `tests.listings`."""

import pytest

from tests import listings


def test_sizes_have_their_sum_and_fall():
  found = listings.sizes(1_000, 30, 2.0)
  assert found.sum() == 1_000
  assert found.min() >= 1
  assert found[0] > 5 * found[-1]


ROWS = {
  'inaturalist-user-120k': '5,792',
  'landmarks-user-160k': '41,329',
  'imagenet21k': '141,971',
}


@pytest.mark.parametrize(
  'rules', [[*ROWS][:1], pytest.param([*ROWS], marks=pytest.mark.slow)]
)
def test_every_rule_splits_the_made_up_files(rules, tmp_path):
  table = listings.measure(str(tmp_path / 'new'), rules, 1 / 100)
  rows = {rule: row for rule, *row in table[1:]}
  assert {rule: row[0] for rule, row in rows.items()} == {
    rule: ROWS[rule] for rule in rules
  }
  for _, seconds, peak, clients, examples in rows.values():
    assert 0.5 < float(seconds) < 100
    assert 0.05 < float(peak) < 2
    assert int(clients.replace(',', '')) > 5
    assert int(examples.replace(',', '')) > 500
  # Whatever was written is deleted.
  assert not list((tmp_path / 'new').iterdir())


def test_full_size_has_the_numbers_of_the_owners(tmp_path):
  _, row = listings.measure(str(tmp_path), ['sop'])
  rule, rows, _, _, clients, examples = row
  # As published, see `datasets.splits.rules`.
  assert [rule, rows, clients, examples] == ['sop', '120,053', '596', '59,551']


def test_a_rule_that_fails_or_is_none_is_told(tmp_path):
  with pytest.raises(SystemExit, match='cifar is no rule; give some of land'):
    listings.measure(str(tmp_path / 'a'), ['cifar'])
  assert not (tmp_path / 'a').exists()
  with pytest.raises(
    SystemExit, match=r'sop: error: .* has no Ebay_train\.txt'
  ):
    listings.split('sop', tmp_path, tmp_path / 'b')
