"""What all published tables have in common."""

import pytest

from tasks.papers import registry
from tasks.papers import table


@pytest.mark.parametrize(
  'found', registry.TABLES.values(), ids=lambda t: t.name
)
def test_only_equal_rows_have_one_label(found):
  for rows in (found.rows, found.small.rows if found.small else ()):
    labels = table.labels(rows)
    of = dict(zip(labels, rows, strict=True))
    assert [of[label] for label in labels] == [*rows]


@pytest.mark.parametrize(
  'found', registry.TABLES.values(), ids=lambda t: t.name
)
def test_every_table_prints_numbers_or_has_a_shape(found):
  printed = [value for row in found.rows for value in row.published.values()]
  assert any(printed) != bool(found.shape)
  labels = table.labels(found.rows)
  assert all({each.of, each.than} <= {*labels} for each in found.shape)
