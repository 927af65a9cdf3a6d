"""Plurals that fit their numbers, units, and names without control characters."""

import pytest

from tff_xc import wording


@pytest.mark.parametrize(
  ('function', 'cases'),
  [
    (
      lambda number: wording.count(number, 'class'),
      {0: '0 classes', 1: '1 class', 21_841: '21,841 classes'},
    ),
    (
      wording.human_bytes,
      {
        **{0: '0 B', 999: '999 B', 999.6: '1.00 kB', 9_994: '9.99 kB'},
        **{9_996: '10.0 kB', 128_224: '128 kB', 999_600: '1.00 MB'},
        **{53_400_000_000: '53.4 GB', 2.5e15: '2500 TB'},
      },
    ),
    (
      wording.human_duration,
      {
        **{0: '0 s', 99.4: '99 s', 99.6: '2 min', 5_969: '99 min'},
        **{5_971: '1 h 40 min', 7_195: '2 h 0 min', 172_700: '47 h 58 min'},
        **{172_799: '2 d 0 h', 10 * 86_400 + 5 * 3_600: '10 d 5 h'},
      },
    ),
    (  # A name is printed in one line without control characters.
      wording.shown,
      {
        'cat 猫 é $5': 'cat 猫 é $5',
        '\x1b]0;PWNED\x07': r'\x1b]0;PWNED\x07',
        'a\nb\t\u202ec\u2028': r'a\nb\t\u202ec\u2028',
        'می\u200cخواهم': 'می\u200cخواهم',
        '\udcff': r'\udcff',
        7: '7',
      },
    ),
  ],
)
def test_what_people_read(function, cases):
  assert {given: function(given) for given in cases} == cases


@pytest.mark.parametrize(
  ('written', 'meant'),
  [
    ('lr', 'client_learning_rate'),
    ('num_rounds', 'rounds'),
    ('numRounds', 'rounds'),
    ('local-epoch', 'local_epochs'),
    ('batchsize', 'batch_size'),
    ('clients_per_roud', 'clients_per_round'),
    ('nonsense', ''),
    ('', ''),
  ],
)
def test_a_flag_that_was_meant_is_named(written, meant):
  known = [
    'client_learning_rate',
    'server_learning_rate',
    'rounds',
    'batch_size',
    'local_epochs',
    'clients_per_round',
    'clients_per_class',
    'seed',
  ]
  expected = f'; did you mean --{meant}?' if meant else ''
  assert wording.meant(written, known, '--') == expected
  assert wording.meant('lr', ['output', 'metric']) == ''
