"""The files of results, their display, and the results in docs/results."""

import os
import re

import pytest

from launch.reproduction import judge, lines as lines_lib, page, plan
from tasks.papers import registry, table
from tests.launch import light
from tests.launch.reproduction import small_table
from tff_xc import errors, files

KEPT = light.ROOT / 'docs/results'
HEADER = ','.join(lines_lib.COLUMNS).encode() + b'\n'


def test_a_result_replaces_its_own_lines_alone(tmp_path):
  small_table.measured('fedmlh/table6').write(tmp_path)
  small_table.measured().write(tmp_path)
  small_table.measured(scale='paper', mean=61.5).write(tmp_path)
  small_table.measured(mean=62.5, note='a, "b"').write(tmp_path)
  found = lines_lib.read_all(tmp_path / 'fedmlh.csv')
  assert [(x.table, x.scale, x.measured.value, x.note) for x in found] == [
    ('table3', 'paper', 61.5, ''),
    ('table3', 'small', 62.5, 'a, "b"'),
    ('table6', 'small', 60.0, ''),
  ]
  assert lines_lib.read(tmp_path, registry.RESULTS[small_table.NAME], 'small').lines == found[1:2]
  assert not lines_lib.read(tmp_path, registry.RESULTS['fedss/table1'], 'small').lines
  assert [path.name for path in tmp_path.iterdir()] == ['fedmlh.csv']


@pytest.mark.parametrize('name', ['fedss', 'fedaws', 'turbosvm-fl', 'fedmlh', 'fedvc'])
def test_kept_files_are_read_and_written_alike(name, tmp_path):
  found = lines_lib.read_all(KEPT / f'{name}.csv')
  result = registry.RESULTS[f'{name}/{found[0].table}']
  lines_lib.Measured(result, found[0].scale, found).write(tmp_path)
  again = lines_lib.read_all(tmp_path / f'{name}.csv')
  assert sorted(map(str, again)) == sorted(map(str, found))


@pytest.mark.parametrize(
  'content',
  [
    b'my,notes\n1,2\n',
    b'',
    b'\xff\xfe',
    HEADER + b'1,2\n',
    HEADER + 8 * b',' + b'xyz,,,,,,,,\n',
    HEADER + 10 * b',' + b'0:1 2,,,,,,\n',
  ],
)
def test_a_file_of_others_or_a_damaged_one_stays(content, tmp_path):
  path = tmp_path / 'fedmlh.csv'
  path.write_bytes(content)
  for use in (
    small_table.measured().write,
    lambda output: lines_lib.refuse_others(output, [small_table.NAME]),
  ):
    with pytest.raises(errors.DamageError, match=r'fedmlh\.csv .*damaged'):
      use(tmp_path)
  assert path.read_bytes() == content
  path.unlink()
  os.mkfifo(path)  # Reading the pipe must not wait.
  with pytest.raises(errors.DamageError, match='regular'):
    lines_lib.read(tmp_path, registry.RESULTS[small_table.NAME], 'small')


def test_what_somebody_else_wrote_is_not_overwritten(tmp_path):
  where = tmp_path / small_table.NAME
  with files.folder(where):
    page.write_text(small_table.measured(), where)
  page.write(tmp_path, 'small')
  lines_lib.refuse_others(tmp_path, [small_table.NAME])
  for path in (where / lines_lib.TEXT, tmp_path / lines_lib.PAGE):
    path.write_text('my notes')
    with pytest.raises(errors.InputError, match=f'{path} was not written'):
      lines_lib.refuse_others(tmp_path, [small_table.NAME])
    path.unlink()


def measured(*values, scale='paper', metrics=('top1',)):
  """Returns the table with lines (row, published, mean, std) for each metric."""
  names = 'row', 'published', 'mean', 'std'
  of = {'task': 'glyphs', 'seeds': 2, 'rounds': 20, 'scale': scale}
  lines = [
    small_table.line(**of, metric=metric, **dict(zip(names, cells, strict=True)))
    for cells in values
    for metric in metrics
  ]
  return lines_lib.Measured(small_table.TABLE, scale, lines)


def rows(cells):
  return [' | '.join(row) for row in (cells.heading, *cells.rows)]


VALUES = (
  ('a', '60.0', 61.04, 1.41),
  ('b', '40.0±0.5', 30.0, 0.0),
  ('c', '', 13.3, ''),
  ('d', '50', '', ''),
)


def test_few_results_stand_beside_each_other():
  own, orders = page.tables(measured(*VALUES))
  assert rows(own) == [
    ' | top-1 % | paper | difference',
    'a | 61.0 ± 1.4 | 60.0 | +1.0',
    'b | 30.0 ± 0.0 | 40.0 ± 0.5 | -10.0 *',
    'c | 13.3 | – | –',
    'd | – | 50 | –',
  ]
  assert rows(orders)[1].startswith('top-1: a above b | +20.0 | +31.0')
  small, _ = page.tables(measured(*VALUES, scale='small'))
  assert rows(small)[0] == ' | top-1 % | paper'


def test_best_seeds_rounds_and_costs_read_well():
  both = [
    small_table.line(row='a', published='60.0', mean=50, std=3, seeds=3),
    small_table.line(row='a', metric='best_seed_top1', mean=53.14),
  ]
  [own] = page.tables(lines_lib.Measured(small_table.TABLE, 'paper', both))
  assert rows(own)[1] == 'a | 50.0 ± 3.0, best 53.1 | 60.0 | -6.9 *'
  rounds = measured(
    ('a', '144', 10, ''),
    ('b', '>200', '>60', ''),
    ('c', '', 9.5, 0.7),
    metrics=('top1:0.7',),
    scale='small',
  )
  own, _ = page.tables(rounds)
  assert rows(own) == [
    ' | rounds to top-1 70 % | paper',
    'a | 10 | 144',
    'b | >60 | >200',
    'c | 9.5 ± 0.7 | –',
  ]
  cost = measured(('a', '', 9.0, 1.0), metrics=judge.COSTS)
  _, costs = page.tables(cost)
  assert rows(costs)[1] == 'a | 2 | 9.0 ± 1.0 | 9 B | 9'
  assert cost.seconds == 9 * 2 * 20


def test_a_study_is_shown_with_its_bounds():
  value = {'metric': lines_lib.VALUE}
  lines = [
    small_table.line(row='alpha = 1', metric='EMD', mean=1.446, std=0.025),
    small_table.line(row='EMD at alpha = 1', mean=1.446, **value),
    small_table.line(row='EMD at alpha = 10', mean=1262, **value),
  ]
  grid, own = page.tables(lines_lib.Measured(registry.RESULTS['fedvc/fig10'], 'small', lines))
  assert rows(grid)[1] == 'alpha = 1 | 1.446 ± 0.025'
  assert rows(own) == [
    ' | here | expected | holds',
    'EMD at alpha = 1 | 1.446 | 1.4 to 1.5 | yes',
    'EMD at alpha = 10 | 1,262 | 0.68 to 0.78 | no',
  ]


def test_markdown_has_the_verdict_the_pictures_and_the_command(tmp_path):
  (tmp_path / 'result.png').write_bytes(b'')
  of = measured(*VALUES)
  page.write_text(of, tmp_path)
  text = (tmp_path / 'result.md').read_text()
  for words in ('| a | 61.0 ± 1.4 | 60.0 | +1.0 |', '**Orders**', '**not run**'):
    assert words in text
  assert '![P, Fig. 1](result.png)' in text
  assert text.endswith('`python -m launch.reproduce p/fig1 --scale=paper`\n')
  assert '**Orders**' not in page.to_markdown(of, is_short=True)


def test_the_page_has_every_result_its_pictures_and_nothing_from_elsewhere(tmp_path, monkeypatch):
  sketch = table.Diagram(paper='P', number='Fig. 2', source='arXiv:1', caption='A <b>"sketch"</b>')
  for found in (small_table.TABLE, sketch):
    monkeypatch.setitem(registry.RESULTS, found.name, found)
  of, where = measured(*VALUES, scale='small'), tmp_path / small_table.TABLE.name
  of.write(tmp_path)
  where.mkdir(parents=True)
  (where / 'result.png').write_bytes(b'')
  page.write_text(of, where)
  (tmp_path / 'fedmlh.csv').write_text('{')
  text = page.write(tmp_path, 'small').read_text()
  for name, each in registry.RESULTS.items():
    assert f'id="{name.replace("/", "-")}" tabindex="-1">{each.title}<' in text
  for words in (
    '<td class="number">61.0 ± 1.4</td>',
    '<img src="p/fig1/result.png"',
    '<code>python -m launch.reproduce p/fig1 --scale=small</code>',
    'A &lt;b&gt;',
    'fedmlh.csv cannot be read',
  ):
    assert words in text
  assert not re.search(r'<b>|url\(|@import|https?://|<link|<script src', text)
  assert page.write(tmp_path, 'small').read_text() == text


def test_what_is_kept_is_of_todays_rows_and_numbers(tmp_path):
  names = set()
  for found in registry.RESULTS.values():
    for scale in table.SCALES:
      of = lines_lib.read(KEPT, found, scale)
      names |= {(found.name, scale)} if of.lines else set()
      assert of.is_measured or not of.lines, found.name
      if not isinstance(found, table.PaperTable) or scale == 'paper' or not of.lines:
        continue
      rows = dict(zip(table.labels(of.form.rows), of.form.rows, strict=True))
      assert {line.row for line in of.lines} == {*rows}, found.name
      # A setting that was added later must not change the runs of these rows.
      plan.plan_runs(of.form.rows, {}, of.form.seeds, tmp_path)
      for line in of.lines:
        row = rows[line.row]
        assert (line.task, line.algorithm, line.changes) == (row.task, row.algorithm, row.changes)
        assert line.published == row.published.get(line.metric)
  forms = [(name, scale) for name, each in registry.RESULTS.items() for scale in each.forms]
  assert {form for form in forms if form[1] != 'paper'} <= names
