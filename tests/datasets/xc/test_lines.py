"""Patterns of lines: linear in time, and known to Python 3.10."""

import re

import pytest

from datasets.xc import lines as xc_lines
from tff_xc import errors


@pytest.mark.parametrize(
  'line',
  [
    b'1' + b' 12:0.25' * 10**5 + b' x',
    b'1' + b' ' * 10**5 + b'x',
    b'1,' * 10**5 + b'x',
    b'1 1:' + b'1' * 10**5 + b'x',
    b'1 1:1e' + b'1' * 10**5 + b'x',
  ],
  ids=['pairs', 'spaces', 'labels', 'digits', 'exponent'],
)
def test_a_long_bad_line_is_refused_in_linear_time(line):
  """In quadratic time this takes minutes."""
  layout = xc_lines.Layout(True, 20, 20)
  assert not xc_lines.is_usual(line, layout)
  with pytest.raises(errors.InputError, match='here: '):
    xc_lines.parse(line, layout, 'here')


def test_patterns_suit_python_3_10():
  patterns = [xc_lines._NUMBER, xc_lines._PAIR, *xc_lines._USUAL.values()]
  assert not [p for p in patterns if re.search(rb'[*+?}]\+|\(\?>', p.pattern)]
