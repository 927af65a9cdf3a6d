"""Numbers with units."""

import pytest

from tff_xc.report import units


@pytest.mark.parametrize(
  ('size', 'text'),
  [
    (0, '0 B'),
    (999, '999 B'),
    (999.6, '1.00 kB'),
    (1000, '1.00 kB'),
    (9_994, '9.99 kB'),
    (9_996, '10.0 kB'),
    (128_224, '128 kB'),
    (999_600, '1.00 MB'),
    (6_600_000, '6.60 MB'),
    (53_400_000_000, '53.4 GB'),
    (2.5e15, '2500 TB'),
  ],
)
def test_human_bytes(size, text):
  assert units.human_bytes(size) == text


@pytest.mark.parametrize(
  ('seconds', 'text'),
  [
    (0, '0 s'),
    (99.4, '99 s'),
    (99.6, '2 min'),
    (5_969, '99 min'),
    (5_971, '1 h 40 min'),
    (7_195, '2 h 0 min'),
    (172_700, '47 h 58 min'),
    (172_799, '2 d 0 h'),
    (10 * 86_400 + 5 * 3_600, '10 d 5 h'),
  ],
)
def test_human_duration(seconds, text):
  assert units.human_duration(seconds) == text
