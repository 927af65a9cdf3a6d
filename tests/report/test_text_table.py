"""Plain tables: alignment, wrapping, widths."""

from tff_xc.report import text_table

ROWS = [
  ['name', 'n', 'what it is'],
  ['a', '1,000', 'some words that are long'],
  ['longest-name', '2', ''],
]


def test_columns_are_aligned_and_the_widest_is_wrapped_between_words():
  assert text_table.to_text(ROWS, left=(0, 2)) == (
    'name              n  what it is\n'
    '------------  -----  ------------------------\n'
    'a             1,000  some words that are long\n'
    'longest-name      2\n'
  )
  assert text_table.to_text(ROWS, left=(0, 2), width=34) == (
    'name              n  what it is\n'
    '------------  -----  -------------\n'
    'a             1,000  some words\n'
    '                     that are long\n'
    'longest-name      2\n'
  )
  text = text_table.to_text(ROWS, left=(0, 2), width=5)
  for word in ('longest-name', '1,000', 'words'):  # They are never broken.
    assert word in text


def test_without_a_terminal_a_table_has_100_columns(monkeypatch):
  monkeypatch.setenv('COLUMNS', '63')
  assert text_table.terminal_width() == 63
  monkeypatch.delenv('COLUMNS')
  monkeypatch.setattr('sys.__stdout__', None)
  assert text_table.terminal_width() == 100
