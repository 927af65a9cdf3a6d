"""Measured numbers stand in tables that a command writes, not in the prose.

What no kept run or benchmark stands behind is in a page's section "Measured once",
which says when and where, or is said in words.
"""

import csv
import re

import pytest

from tasks.papers import fedss
from tests import documents

ONCE = 'Measured once'
# "On paper" calculates with the numbers of "Measured once".
LEFT_OUT = (ONCE, 'On paper')
# Tables with such headings have settings and decisions in their cells.
SETTINGS = ('default', 'decided')
# What looks measured and is a setting, a formula's result, or published.
ALLOWED = {
  'fedmlh': ('1.61 MiB', '199.7 MiB', '399.2 MiB'),
  'runtime': ('600 s', '20 s'),
  'turbosvm': ('227.0 ± 88.4',),
}
NUMBER = r'\d[\d,]*(?:\.\d+)?'
DECIMAL = r'\d[\d,]*\.\d+'
LOOKS_MEASURED = re.compile(
  '|'.join(
    (
      rf'{NUMBER} (?:s|ms|µs|seconds|minutes|hours)\b',
      rf'{DECIMAL} %',
      rf'{NUMBER} % (?:top-1|faster|slower|longer|more|less|fewer)\b',
      rf'{NUMBER} % of (?:the bytes|the time|a round)\b',
      rf'{DECIMAL} times\b',
      rf'{NUMBER} (?:×|times) (?:as|faster|slower)\b',
      rf'{DECIMAL} (?:kB|MB|GB|KiB|MiB|GiB)\b',
      rf'{NUMBER} ± {NUMBER}',
      rf'{NUMBER} \[{NUMBER} – ',
    )
  )
)
CELL = re.compile(rf'(?<=\|) *(\**{DECIMAL}\**) *(?=\|)')
NO_PROSE = re.compile(
  '|'.join(
    (
      r'<!-- \w+ [^\n]*-->\n.*?<!-- end -->',
      r'<!--.*?-->',
      r'^```.*?^```$',
      r'\$\$.*?\$\$',
      r'\$[^$\n]*\$',
      r'`[^`\n]*`',
    )
  ),
  re.DOTALL | re.MULTILINE,
)


def measured(text):
  """Returns (line number, number) of what looks measured in the prose."""
  text = NO_PROSE.sub(lambda found: '\n' * found[0].count('\n'), text)
  found, left_out, heading, before = [], 0, '', ''
  for i, line in enumerate(text.splitlines(), 1):
    if title := re.match(r'(#+) (.*)', line):
      level = len(title[1])
      if level <= left_out or not left_out:
        left_out = level if title[2] in LEFT_OUT else 0
    if line[:1] == '|' and before[:1] != '|':
      heading = line
    before = line
    is_row = line[:1] == '|'
    if left_out or (is_row and any(word in heading for word in SETTINGS)):
      continue
    found += [(i, hit[0]) for hit in LOOKS_MEASURED.finditer(line)]
    if is_row:
      found += [(i, hit[1]) for hit in CELL.finditer(line)]
  return found


@pytest.mark.parametrize('path', documents.FILES, ids=lambda p: p.stem)
def test_no_measured_number_is_typed_by_hand(path):
  found = measured(path.read_text())
  allowed = ALLOWED.get(path.stem, ())
  typed = [f'{path.name}:{i}: {hit}' for i, hit in found if hit not in allowed]
  assert not typed, (
    f'{typed}: write a table by launch.document, say it in words, or move it to '
    f'"{ONCE}"'
  )
  assert {hit for _, hit in found} == set(allowed)  # None is left over.


def test_a_section_of_single_measurements_says_when():
  checked = 0
  for path in documents.FILES:
    for level in ('##', '###'):
      heading = f'{level} {ONCE}'
      if f'\n{heading}\n' in path.read_text():
        text = documents.section(path.read_text(), heading)
        assert re.search(r'\b20\d\d-\d\d-\d\d\b', text), path
        checked += 1
  assert checked > 1


def test_what_is_calculated_on_paper_begins_with_what_was_measured():
  kept = documents.ROOT / 'docs/results/measured/driver_costs.csv'
  with kept.open() as file:
    cost = {row[0]: row[1].replace(',', '') for row in csv.reader(file)}
  row, client = float(cost['a row']), float(cost['a client'])
  seconds = float(f'{1e8 * row / 1e6 + 1e5 * client / 1e6:.2g}')
  text = documents.page('scale')
  assert (
    f'10⁸ rows × {row:.1f} µs + 10⁵ clients × {client / 1e3:.2f} ms |'
    f' {seconds:.0f} s of'
  ) in text
  cores = round(1e5 / (100 * row + 0.1 * client), -1)
  assert f'as long as\n{cores:.0f} cores take' in text


@pytest.mark.parametrize(
  ('line', 'hits'),
  [
    ('A round takes 1.1 s on two cores.', ['1.1 s']),
    ('It reaches 73.8 % top-1.', ['73.8 %']),
    ('It reaches 73 % top-1, 7 % longer.', ['73 % top-1', '7 % longer']),
    ('The worker takes 2.1 times as long.', ['2.1 times']),
    ('It is 3 times as fast.', ['3 times as']),
    ('The peak is 1.03 GB.', ['1.03 GB']),
    ('0.73 [0.72 – 0.82] of plain TF', ['0.73 [0.72 – ']),
    ('51.7 ± 0.4', ['51.7 ± 0.4']),
    ('| FedSS | 112 | **73.8** | 38.4 |', ['**73.8**', '38.4']),
    ('With a rate of 0.01 and 8 clients, 10 % of the images.', []),
    ('`--timeout=1.5 s`, $2.5 s$ and <!-- 2.5 s -->', []),
    ('<!-- benchmark a.json -->\n| a | 1.1 |\n<!-- end -->', []),
    ('```\ntook 1.1 s\n```', []),
    ('| flag | default |\n|---|---|\n| momentum | 0.9 |', []),
    (f'## {ONCE}\n1.1 s\n### A\n1.2 s\n## B\n1.3 s', ['1.3 s']),
    (f'### {ONCE}\n1.1 s\n## B\n1.3 s', ['1.3 s']),
  ],
)
def test_what_looks_measured(line, hits):
  assert [hit for _, hit in measured(f'{line}\n')] == hits


def test_lines_are_counted_with_what_is_left_out():
  text = '# A\n```\na\n```\n<!-- result b -->\n1.1 s\n<!-- end -->\n1.2 s\n'
  assert measured(text) == [(8, '1.2 s')]


def test_the_encoder_of_fedss_fits_the_printed_shares():
  number = lambda text: 0 if text == '–' else int(text.replace(',', ''))
  printed = [
    (row[4], *map(number, row[1:4]))
    for row in fedss.FIGURE8.rows
    if row[4] != '–'
  ]

  def fits(encoder):
    shares = [fedss.share(encoder, *sizes) for _, *sizes in printed]
    return all(
      f'{100 * share:.{len(text.partition(".")[2])}f}' == text
      for share, (text, *_) in zip(shares, printed, strict=True)
    )

  found = [e for e in range(3_000_000, 4_500_000, 1_000) if fits(e)]
  told = {f'{e / 1e6:.2f}' for e in (found[0], fedss.ENCODER, found[-1])}
  assert [f'of about {text} million parameters' for text in told] == re.findall(
    r'of about [\d.]+ million parameters', documents.page('deviations')
  )
