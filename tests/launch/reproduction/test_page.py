"""The page of all results."""

import os
import pathlib
import re
import shutil

import pytest
from PIL import Image

from launch.reproduction import experiments
from launch.reproduction import page
from launch.reproduction import results
from tasks.papers import registry
from tasks.papers import table
from tests.launch.reproduction import parsed_page
from tests.launch.reproduction import small_table

TABLE = small_table.TABLE
DIAGRAM = table.Diagram(
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
  """The output of a table whose third row is behind the others."""
  output = tmp_path_factory.mktemp('output')
  request = experiments.Request(
    scale='small', output=output, seeds=(0, 1, 2), train=False
  )
  planned = experiments.plan_one(TABLE, request)
  for score, runs in zip((0.3, 0.5, 0.46), planned.runs, strict=True):
    for run in runs:
      small_table.finish(run, score)
  experiments.run_all([planned], request)
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


def test_every_result_has_a_section_a_row_and_a_verdict(written):
  found = parsed_page.Page(text_of(written))
  found.assert_sound()
  for name, each in registry.RESULTS.items():
    assert found.texts[name.replace('/', '-')] == each.title
  [(_, shows, verdict, time)] = [r for r in found.rows if r[0] == 'P, Fig. 1']
  # What was made smaller is told beside what it shows.
  assert shows == 'Top-1 by negativesTwo methods on procedural glyphs.'
  assert verdict.startswith('✗ not reproduced small')
  assert time == '90 s'
  of = lambda kind: sum(isinstance(r, kind) for r in registry.RESULTS.values())
  diagrams = of(table.Diagram)
  # Formulas, too, count only where they were asked for.
  assert found.verdicts() == {
    'reproduced': 0,
    'shape reproduced': 0,
    'not reproduced': 1,
    'undecided': 0,
    'not run': len(registry.RESULTS) - 1 - diagrams,
    'formula only': 0,
    'nothing to run': diagrams,
  }


def test_a_section_holds_all_that_was_written_and_escapes_it(written):
  text = text_of(written)
  found = parsed_page.Page(text)
  row = ['fedss negatives=9', '50.0 ± 0.0', '80.0', '16.7 ± 0.0', '30.0']
  assert row in found.rows
  disagree = [row for row in found.rows if row[-1] == 'disagrees']
  assert [row[0].partition(':')[0] for row in disagree] == [
    *('top-1', 'FedSS is ahead (abstract)')
  ]
  assert {'Cost', 'Orders'} <= set(found.captions)
  for address in ('p.csv', 'p/fig1/result.md'):
    assert address in found.values('a', 'href')
    assert (written / address).exists()
  command = 'python -m launch.reproduce p/fig1 --scale=small --seeds=0,1,2'
  assert command in text
  assert '<b>' not in text
  assert 'A &lt;b&gt;&#34;sketch&#34;&lt;/b&gt; &amp; more' in text


def test_nothing_is_loaded_from_elsewhere_and_equal_results_are_equal_bytes(
  written, output, monkeypatch
):
  text = text_of(written)
  found = parsed_page.Page(text)
  [picture] = found.values('img', 'src')
  assert picture.startswith('data:image/webp;base64,')
  assert 'link' not in {tag for tag, _ in found.elements}
  assert not found.values('script', 'src')
  assert not re.search(r'url\(|@import|https?://', text)
  rewritten(output)
  assert text_of(output) == text
  # A page that gets too large reads pictures from beside it.
  monkeypatch.setattr(page, '_MOST_BYTES', 1000)
  assert rewritten(output).values('img', 'src') == ['p/fig1/result.png']


def _cut(picture, elsewhere, patch):
  picture.write_bytes(b'\x89PNG\r\n')


def _linked(picture, elsewhere, patch):
  picture.rename(elsewhere)
  picture.symlink_to(elsewhere)


def _piped(picture, elsewhere, patch):
  picture.unlink()
  os.mkfifo(picture)


def _huge(picture, elsewhere, patch):
  patch.setattr(Image, 'MAX_IMAGE_PIXELS', 1)


def test_equal_pictures_are_in_the_page_once_and_many_fill_it_to_its_limit(
  output, monkeypatch
):
  folder = output / 'p/fig1'
  shutil.copy(folder / 'result.png', folder / 'result2.png')
  [_] = rewritten(output).values('img', 'src')
  assert 'Its picture is that of <a href="#p-fig1">P, Fig. 1' in text_of(output)
  size = len(text_of(output).encode())
  monkeypatch.setattr(page, '_MOST_BYTES', size + 1000)
  for number in range(2):
    with Image.open(folder / 'result.png') as image:
      image.putpixel((number, 0), (0, 0, 0))
      image.save(folder / f'other{number}.png')
  sources = rewritten(output).values('img', 'src')
  # All are of about the same size, and one is in the page.
  assert len(sources) == 3
  assert sum(source.startswith('data:') for source in sources) == 1
  assert len(text_of(output).encode()) <= size + 1000


@pytest.mark.parametrize('damage', [_cut, _linked, _piped, _huge])
def test_a_picture_that_is_no_picture_of_the_folder_is_told(
  damage, output, tmp_path, monkeypatch
):
  picture = output / 'p/fig1/result.png'
  damage(picture, tmp_path / 'mine.png', monkeypatch)
  assert not rewritten(output).values('img', 'src')
  assert 'result.png is missing or damaged' in text_of(output)


def test_a_file_that_cannot_be_read_ends_no_other(output, monkeypatch):
  exists = pathlib.Path.exists

  def shut(path):
    if path.name == 'p.csv':
      raise PermissionError(13, 'Permission denied')
    return exists(path)

  monkeypatch.setattr(pathlib.Path, 'exists', shut)
  (output / 'fedmlh.csv').write_text('{')
  rewritten(output)
  assert 'p.csv cannot be read ([Errno 13] Permission' in text_of(output)
  assert 'fedmlh.csv was not written by' in text_of(output)


def test_long_tables_are_folded_away(output):
  lines = results.read(output, TABLE, 'small').lines.to_dict('records')
  more = [
    {**each, 'row': each['row'] + str(i)} for i in range(9) for each in lines
  ]
  results.Measured(TABLE, 'small', results.frame(more)).write(output)
  rewritten(output)
  folded = '<summary>Measured beside published: 27 rows</summary>'
  assert folded in text_of(output)
