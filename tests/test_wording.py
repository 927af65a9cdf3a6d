"""Messages count in words that fit the number."""

import pytest

from tff_xc import wording


@pytest.mark.parametrize(
  ('number', 'what', 'expected'),
  [
    (0, 'round', '0 rounds'),
    (1, 'round', '1 round'),
    (2, 'round', '2 rounds'),
    (1, 'class', '1 class'),
    (21_841, 'class', '21,841 classes'),
  ],
)
def test_a_noun_fits_its_number(number, what, expected):
  assert wording.count(number, what) == expected
