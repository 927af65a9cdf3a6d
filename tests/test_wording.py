"""Words that fit their numbers, units, and names that do no harm."""

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
  assert wording.human_bytes(size) == text


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
  assert wording.human_duration(seconds) == text


@pytest.mark.parametrize(
  ('text', 'expected'),
  [
    ('cat 猫 é $5', 'cat 猫 é $5'),
    ('\x1b]0;PWNED\x07', r'\x1b]0;PWNED\x07'),
    ('a\nb\t\u202ec\u2028', r'a\nb\t\u202ec\u2028'),
    ('می\u200cخواهم', 'می\u200cخواهم'),
    ('\udcff', r'\udcff'),
    (7, '7'),
  ],
)
def test_a_name_is_one_line_without_commands(text, expected):
  assert wording.shown(text) == expected


@pytest.mark.parametrize('text', ['fedss lr=-1', '-1.5', '+3', '', 'a=b'])
def test_cells_keep_what_is_no_formula(text):
  assert wording.cell(text) == text


@pytest.mark.parametrize('text', ['=1+1', '@SUM(A1)', '+cmd|x', '-a'])
def test_cells_hold_no_formula(text):
  assert wording.cell(text) == f"'{text}"
  assert wording.cell('a\x1b[31m\n=b') == r'a\x1b[31m\n=b'


@pytest.mark.parametrize(
  ('written', 'meant'),
  [
    ('lr', 'client_learning_rate'),
    ('learning_rate', 'client_learning_rate'),
    ('num_rounds', 'rounds'),
    ('numRounds', 'rounds'),
    ('epochs', 'local_epochs'),
    ('local-epoch', 'local_epochs'),
    ('batch', 'batch_size'),
    ('batchsize', 'batch_size'),
    ('clients_per_roud', 'clients_per_round'),
    ('nonsense', ''),
    ('', ''),
  ],
)
def test_a_flag_that_was_meant_is_named(written, meant):
  known = [
    *('client_learning_rate', 'server_learning_rate', 'rounds', 'batch_size'),
    *('local_epochs', 'clients_per_round', 'clients_per_class', 'seed'),
  ]
  expected = f'; did you mean --{meant}?' if meant else ''
  assert wording.meant(written, known, '--') == expected


def test_a_synonym_of_a_flag_that_is_not_there_names_none():
  assert wording.meant('lr', ['output', 'metric']) == ''
