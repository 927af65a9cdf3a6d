"""The files of results, how they are shown, and the results that are kept."""

import os
import pathlib
import re

import pytest

from launch.reproduction import judge
from launch.reproduction import page
from launch.reproduction import results
from launch.reproduction import rows as rows_lib
from tasks.papers import registry
from tasks.papers import table
from tests.launch.reproduction import parsed_page
from tests.launch.reproduction import small_table
from tff_xc import errors

ROOT = pathlib.Path(__file__).parents[3]
KEPT = ROOT / 'docs/results'
NAME = small_table.NAME


def test_a_result_replaces_its_own_lines_alone(tmp_path):
  small_table.measured('fedmlh/table6').write(tmp_path)
  small_table.measured().write(tmp_path)
  small_table.measured(scale='paper', mean=61.5).write(tmp_path)
  small_table.measured(mean=62.5, note='a, "b"').write(tmp_path)
  found = results.read_all(tmp_path / 'fedmlh.csv')
  assert [*zip(found['table'], found['scale'], found['mean'], strict=True)] == [
    ('table3', 'paper', '61.5'),
    ('table3', 'small', '62.5'),
    ('table6', 'small', '60.0'),
  ]
  of = lambda name: results.read(tmp_path, registry.RESULTS[name], 'small')
  assert of(NAME).lines['note'][0] == 'a, "b"'
  assert of('fedss/table1').lines.empty
  assert [path.name for path in tmp_path.iterdir()] == ['fedmlh.csv']


@pytest.mark.parametrize(
  ('content', 'problem'),
  [
    (b'my,notes\n1,2\n', 'not written by'),
    (b'', 'not written by'),
    (b'\xff\xfe', 'cannot be read'),
    (','.join(results.COLUMNS).encode() + b'\n1,2\n', 'line 2'),
    (
      ','.join(results.COLUMNS).encode() + b'\n\x1b[31m' + 16 * b',' + b'\n',
      'line 2',
    ),
    (
      ','.join(results.COLUMNS).encode() + b'\n' + 8 * b',' + b'xyz,,,,,,,,\n',
      'line 2',
    ),
    (
      ','.join(results.COLUMNS).encode() + b'\n' + 10 * b',' + b'0:1 2,,,,,,\n',
      'line 2',
    ),
  ],
)
def test_a_file_of_others_or_a_damaged_one_stays(content, problem, tmp_path):
  path = tmp_path / 'fedmlh.csv'
  path.write_bytes(content)
  with pytest.raises(errors.DamageError, match=f'fedmlh.csv .*{problem}'):
    small_table.measured().write(tmp_path)
  with pytest.raises(errors.DamageError, match=problem):  # Before training.
    results.refuse_others(tmp_path, [NAME])
  assert path.read_bytes() == content
  path.unlink()
  os.mkfifo(path)  # Nobody waits for a pipe.
  with pytest.raises(errors.DamageError, match='regular'):
    results.read(tmp_path, registry.RESULTS[NAME], 'small')


@pytest.mark.parametrize(
  'name',
  [
    *('top_1', 'relative_top1:a', 'top1:a', 'top1@'),
    '"top1@rounds:1,batches:2"',
  ],
)
def test_a_result_of_which_nothing_is_known_is_damage(name, tmp_path):
  small_table.measured().write(tmp_path)
  path = tmp_path / 'fedmlh.csv'
  text = path.read_text()
  known = small_table.measured().lines['metric'][0]
  assert f',{known},' in text
  path.write_text(text.replace(f',{known},', f',{name},'))
  with pytest.raises(errors.DamageError, match=r'damaged .*result'):
    results.read(tmp_path, registry.RESULTS[NAME], 'small')


def test_what_somebody_else_wrote_is_not_overwritten(tmp_path):
  results.refuse_others(tmp_path / 'nothing', [NAME])
  where = tmp_path / NAME
  with results.writing(where):
    small_table.measured().write_text(where)
  page.write(tmp_path, 'small')
  results.refuse_others(tmp_path, [NAME])
  (where / 'result.md').write_text('my notes')
  with pytest.raises(errors.InputError, match=r'result\.md was not written'):
    results.refuse_others(tmp_path, [NAME])
  results.refuse_others(tmp_path, ['fedmlh/table5'])
  (tmp_path / page.FILE).write_text('my notes')
  with pytest.raises(errors.InputError, match=r'report\.html was not written'):
    results.refuse_others(tmp_path, ['fedmlh/table5'])


def lines(*values, scale='paper', metrics=('top1',)):
  """Returns the table with lines (row, published, mean, std) for each metric."""
  found = results.frame(
    {
      **{'table': 'fig1', 'scale': scale, 'row': row, 'algorithm': row},
      **{'task': 'glyphs', 'metric': metric, 'published': published},
      **{'mean': mean, 'std': std, 'seeds': 2, 'rounds': 20},
    }
    for row, published, mean, std in values
    for metric in metrics
  )
  return results.Measured(small_table.TABLE, scale, found)


VALUES = (
  ('a', '60.0', 61.04, 1.41),
  ('b', '40.0±0.5', 30.0, 0.0),
  ('c', '', 13.3, ''),
  ('d', '50', '', ''),
)


def test_few_results_stand_beside_each_other():
  own, orders = lines(*VALUES).tables()
  assert own.heading == ('', 'top-1 %', 'paper', 'difference')
  assert own.rows == (
    ('a', '61.0 ± 1.4', '60.0', '+1.0'),
    ('b', '30.0 ± 0.0', '40.0 ± 0.5', '-10.0 *'),
    ('c', '13.3', '–', '–'),
    ('d', '–', '50', '–'),
  )
  assert orders.rows[0][:3] == ('top-1: a above b', '+20.0', '+31.0')
  small, _ = lines(*VALUES, scale='small').tables()
  assert small.heading == ('', 'top-1 %', 'paper')


def test_many_results_stand_below_each_other(monkeypatch):
  monkeypatch.setenv('COLUMNS', '100')
  many = lines(*VALUES, metrics=('top1', 'mcc', 'macro_f1'))
  own, _ = many.tables()
  assert own.heading == ('', 'result', 'here', 'paper', 'difference')
  assert own.rows[1] == ('a', 'MCC %', '61.0 ± 1.4', '60.0', '+1.0')
  assert len(own.rows) == 12
  text = many.to_text()
  assert text.startswith('P, Fig. 1, arXiv:1. Top-1 by negatives.')
  assert max(map(len, text.splitlines())) <= 100


def test_a_best_seed_stands_in_the_cell_of_the_mean():
  both = results.frame(
    {'row': 'a', 'task': 'glyphs', 'published': published, **more}
    for published, more in (
      ('60.0', {'metric': 'top1', 'mean': 50.0, 'std': 3.0, 'seeds': 3}),
      ('', {'metric': 'best_seed_top1', 'mean': 53.14}),
    )
  )
  own = results.Measured(small_table.TABLE, 'paper', both).tables()[0]
  assert own.rows == (('a', '50.0 ± 3.0, best 53.1', '60.0', '-6.9 *'),)


def test_rounds_and_costs_read_well():
  rounds = lines(
    *(('a', '144', 10, ''), ('b', '>200', '>60', ''), ('c', '', 9.5, 0.7)),
    metrics=('top1:0.7',),
    scale='small',
  )
  own, _ = rounds.tables()
  assert own.heading == ('', 'rounds to top-1 70 %', 'paper')
  shown = [('10', '144'), ('>60', '>200'), ('9.5 ± 0.7', '–')]
  assert [row[1:] for row in own.rows] == shown
  cost = lines(('a', '', 9.0, 1.0), metrics=judge.COSTS)
  _, costs = cost.tables()
  assert costs.heading[1:] == ('seeds', 'best round', 'sent down', 's / round')
  assert costs.rows == (('a', '2', '9.0 ± 1.0', '9 B', '9'),)
  assert cost.seconds == 9 * 2 * 20


def test_a_study_is_shown_with_its_bounds():
  found = registry.RESULTS['fedvc/fig10']
  values = [
    {'row': 'alpha = 1', 'metric': 'EMD', 'mean': 1.446, 'std': 0.025},
    {'row': 'EMD at alpha = 1', 'metric': results.VALUE, 'mean': 1.446},
    {'row': 'EMD at alpha = 10', 'metric': results.VALUE, 'mean': 1262.0},
  ]
  of = results.Measured(found, 'small', results.frame(values))
  grid, own = of.tables()
  assert grid.rows == (('alpha = 1', '1.446 ± 0.025'),)
  assert own.heading == ('', 'here', 'expected', 'holds')
  assert own.rows == (
    ('EMD at alpha = 1', '1.446', '1.4 to 1.5', 'yes'),
    ('EMD at alpha = 10', '1,262', '0.68 to 0.78', 'no'),
  )


def test_markdown_has_the_verdict_the_pictures_and_the_command(tmp_path):
  (tmp_path / 'result.png').write_bytes(b'')
  of = lines(*VALUES)
  of.lines['command'] = 'python -m launch.reproduce p/fig1'
  of.write_text(tmp_path)
  text = (tmp_path / 'result.md').read_text()
  assert '| a | 61.0 ± 1.4 | 60.0 | +1.0 |' in text
  assert '**Orders**' in text
  assert '**not run**' in text
  assert '![P, Fig. 1](result.png)' in text
  assert text.endswith('`python -m launch.reproduce p/fig1`\n')
  short = of.to_markdown(is_short=True)
  assert '**Orders**' not in short
  assert '**not run**' in short


def kept():
  """Yields each table or study with its kept lines, by scale."""
  for found in registry.RESULTS.values():
    for scale in table.SCALES:
      of = results.read(KEPT, found, scale)
      if len(of.lines):
        yield found, of


def test_what_is_kept_is_of_todays_rows_and_numbers(tmp_path):
  names = set()
  for found, of in kept():
    names.add((found.name, of.scale))
    assert of.is_measured, found.name
    if not isinstance(found, table.PaperTable) or of.scale == 'paper':
      continue
    form = found.real if of.scale == 'real' else found.small
    rows = dict(zip(table.labels(form.rows), form.rows, strict=True))
    assert {*of.lines['row']} == {*rows}, found.name
    # A new setting, of which they do not know, makes other runs of them.
    rows_lib.plan_runs(form.rows, {}, form.seeds, tmp_path)
    for line in of.lines.itertuples():
      row = rows[line.row]
      assert (line.task, line.algorithm) == (row.task, row.algorithm)
      assert table.changes(line.changes) == row.changes
      printed = row.published.get(line.metric) or ''
      assert line.published == printed.replace(' ', '')
  small = {
    name
    for name, found in registry.RESULTS.items()
    if isinstance(found, table.Study) or getattr(found, 'small', None)
  }
  others = {('fedaws/table1', 'paper'), ('fedvc/table1', 'paper')}
  real = (
    'fedaws/table1',
    'fedaws/table3',
    'fedaws/table4',
    'fedmlh/table6',
    'fedss/table1',
    'fedvc/fig4',
    'turbosvm-fl/fig5',
    'turbosvm-fl/table2',
    'turbosvm-fl/table3',
  )
  others |= {(name, 'real') for name in real}
  assert names == {(name, 'small') for name in small} | others


@pytest.mark.slow
def test_the_readme_and_the_report_count_the_same(tmp_path):
  text = (ROOT / 'README.md').read_text()
  [total] = re.findall(r'^\| all \| (.*) \| \d+ \|$', text, re.MULTILINE)
  for path in KEPT.glob('*.csv'):
    (tmp_path / path.name).write_text(path.read_text())
  page.write(tmp_path, 'small')
  shown = parsed_page.Page((tmp_path / page.FILE).read_text()).verdicts()
  assert list(map(int, total.split(' | '))) == list(shown.values())
  assert list(shown) == list(judge.Verdict)
