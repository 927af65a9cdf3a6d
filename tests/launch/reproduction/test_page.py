"""The page of all results."""

import json
import os
import pathlib
import re
import shutil

import pytest
from PIL import Image

from launch.reproduction import experiments
from launch.reproduction import others
from launch.reproduction import page
from tasks.papers import registry
from tasks.papers import result
from tests.launch.reproduction import parsed_page
from tests.launch.reproduction import small_table
from tff_xc import errors

TABLE = small_table.TABLE
DIAGRAM = result.Diagram(
  paper='P',
  number='Fig. 2',
  source='arXiv:1',
  caption='A <b>"sketch"</b> & more',
)


@pytest.fixture(name='registered', scope='module', autouse=True)
def _registered():
  with pytest.MonkeyPatch.context() as patch:
    for found in (TABLE, DIAGRAM):
      patch.setitem(registry.RESULTS, found.name, found)
    yield


@pytest.fixture(name='written', scope='module')
def _written(registered, tmp_path_factory):
  """The output of a table with a failed expectation, and of formulas."""
  output = tmp_path_factory.mktemp('output')
  found = [TABLE, *registry.chosen(['fedmlh/table4', 'fedmlh/table5'])]
  request = experiments.Request(
    names=tuple(each.name for each in found),
    scale='small',
    output=output,
    train=False,
  )
  planned = [experiments.plan_one(each, request) for each in found]
  for score, [run] in zip((0.3, 0.5, 0.46), planned[0].runs, strict=True):
    small_table.finish(run, score)
  experiments.run_all(planned, request)
  return output


@pytest.fixture(name='output')
def _output(written, tmp_path):
  """A copy of it, to be changed."""
  return shutil.copytree(written, tmp_path / 'output')


def text_of(output):
  return (output / page.FILE).read_text(encoding='utf-8')


def rewritten(output):
  page.write(output, 'small')
  return parsed_page.Page(text_of(output))


def test_every_result_has_a_section_and_a_row(written):
  found = parsed_page.Page(text_of(written))
  found.assert_sound()
  for name, each in registry.RESULTS.items():
    assert found.texts[name.replace('/', '-')] == each.title
  rows = [row for row in found.rows if row[0] == 'P, Fig. 1']
  [(_, shows, verdict, time)] = rows
  # What was made smaller is told beside what it shows.
  assert shows == 'Top-1 by negativesTwo methods on procedural glyphs.'
  assert verdict.startswith(
    '✗ not reproduced small 1 of 2 do not hold: top-1 of'
  )
  assert time == '30 s'


def test_verdicts_are_counted(written):
  diagrams = [
    r for r in registry.RESULTS.values() if isinstance(r, result.Diagram)
  ]
  assert parsed_page.Page(text_of(written)).verdicts() == {
    'reproduced': 1,
    'shape reproduced': 1,
    'not reproduced': 1,
    'not run': len(registry.RESULTS) - 3 - len(diagrams),
    'nothing to run': len(diagrams),
  }


def test_a_section_holds_all_that_was_written(written):
  text = text_of(written)
  found = parsed_page.Page(text)
  assert ['fedss negatives=9', '50.0', '80.0', '16.7', '30.0'] in found.rows
  assert [row for row in found.rows if row[-1] == 'no'] == [
    ['AMZtitle', 'fedavg', 'GiB', '135.0', '134.94', 'no'],
    [
      'top-1 of fedss negatives=9: at least 5 points above that of posonly',
      *('+4.0', 'no'),
    ],
  ]
  assert 'Cost' in found.captions
  for name in ('csv', 'md', 'json', 'png'):
    assert f'p/fig1/result.{name}' in found.values('a', 'href')
    assert (written / f'p/fig1/result.{name}').exists()
  command = 'python -m launch.reproduce p/fig1 --scale=small'
  assert command in re.sub('</?span>', '', text)


def test_what_runs_are_too_short_for_is_unknown(output):
  path = output / 'p' / 'fig1' / 'result.json'
  kept = json.loads(path.read_text())
  kept['checked'][0] = ['rounds of a: at most 5', 'at least 61.0', None]
  path.write_text(json.dumps(kept))
  found = rewritten(output)
  found.assert_sound()
  assert ['rounds of a: at most 5', 'at least 61.0', 'unknown'] in found.rows


def test_nothing_is_loaded_from_elsewhere(written):
  text = text_of(written)
  found = parsed_page.Page(text)
  [picture] = found.values('img', 'src')
  assert picture.startswith('data:image/png;base64,')
  assert 'link' not in {tag for tag, _ in found.elements}
  assert not found.values('script', 'src')
  assert not re.search(r'url\(|@import|https?://', text)


def test_a_page_that_gets_too_large_reads_pictures_from_beside_it(
  output, monkeypatch
):
  monkeypatch.setattr(page, '_MOST_BYTES', 1000)
  assert rewritten(output).values('img', 'src') == ['p/fig1/result.png']


def test_equal_results_give_equal_bytes(written, output):
  rewritten(output)
  assert text_of(output) == text_of(written)


def test_text_is_escaped(output):
  text = text_of(output)
  assert '<b>' not in text
  assert 'A &lt;b&gt;&#34;sketch&#34;&lt;/b&gt; &amp; more' in text


def test_damaged_files_are_told_in_a_sentence(output):
  (output / 'p/fig1/result.png').write_bytes(b'\x89PNG\r\n')
  (output / 'fedmlh/table5/result.json').write_text('{')
  shutil.copytree(output / 'fedmlh/table4', output / 'fedmlh/table2')
  shutil.copytree(output / 'fedmlh/table4', output / 'fedmlh/table99')
  found = rewritten(output)
  text = text_of(output)
  assert 'result.png is missing or damaged; the command below' in text
  assert not found.values('img', 'src')
  assert 'table5/result.json is damaged (Expecting property name' in text
  assert 'table2/result.json is damaged (it is of fedmlh/table4)' in text
  assert 'knows no such results: fedmlh/table99.' in text
  found = found.verdicts()
  shown = found['not run'] + found['nothing to run']
  assert shown == len(registry.RESULTS) - 2


@pytest.mark.parametrize(
  'change',
  [
    {'tables': [3]},
    {'seconds': 'long'},
    {'seconds': float('nan')},
    {'pictures': 5},
    {'why': 1},
    {'why': 'red\x1b[31m'},
    {'pictures': ['../../../mine.png']},
    {'pictures': ['..']},
    {'pictures': ['javascript:alert(3)']},
  ],
)
def test_a_result_of_another_form_is_damaged(change, output):
  path = output / 'p/fig1/result.json'
  path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
  rewritten(output)
  assert 'fig1/result.json is damaged (' in text_of(output)


def test_what_is_nested_too_deeply_or_a_pipe_is_damaged(output):
  path = output / 'p/fig1/result.json'
  path.write_text('[' * 100_000)
  rewritten(output)
  assert 'fig1/result.json is damaged (it is nested' in text_of(output)
  path.unlink()
  os.mkfifo(path)
  rewritten(output)
  assert 'fig1/result.json is damaged (it is no regular' in text_of(output)


def test_a_picture_of_another_folder_is_not_taken(output, tmp_path):
  picture = output / 'p/fig1/result.png'
  picture.rename(tmp_path / 'mine.png')
  picture.symlink_to(tmp_path / 'mine.png')
  assert not rewritten(output).values('img', 'src')
  picture.unlink()
  os.mkfifo(picture)
  assert not rewritten(output).values('img', 'src')
  assert 'result.png is missing or damaged' in text_of(output)


def test_a_result_that_cannot_be_looked_at_ends_no_other(output, monkeypatch):
  exists = pathlib.Path.exists

  def shut(path):
    if path.parent.name == 'fig1':
      raise PermissionError(13, 'Permission denied')
    return exists(path)

  monkeypatch.setattr(pathlib.Path, 'exists', shut)
  rewritten(output)
  assert 'fig1/result.json is damaged ([Errno 13] Permission' in text_of(output)


def test_a_picture_too_large_to_open_is_told(output, monkeypatch):
  monkeypatch.setattr(Image, 'MAX_IMAGE_PIXELS', 1)
  rewritten(output)
  assert 'result.png is missing or damaged; the command' in text_of(output)


def test_what_somebody_else_wrote_is_not_overwritten(output):
  names = ['fedmlh/table5', 'fedmlh/table4']
  others.refuse(output, names)
  others.refuse(output / 'nothing', names)
  (output / 'fedmlh/table5/result.json').unlink()
  with pytest.raises(
    errors.InputError, match=r'table5/result.md was not writt'
  ):
    others.refuse(output, names)
  others.refuse(output, names[1:])
  (output / page.FILE).write_text('my notes')
  with pytest.raises(
    errors.InputError, match=r'report.html was not written by'
  ):
    others.refuse(output, names[1:])


def test_long_tables_are_folded_away(output):
  path = output / 'fedmlh/table5/result.json'
  found = json.loads(path.read_text())
  found['tables'][0][2] *= 3
  path.write_text(json.dumps(found))
  rewritten(output)
  assert '<summary>Measured beside published: 36 rows</summary>' in text_of(
    output
  )
