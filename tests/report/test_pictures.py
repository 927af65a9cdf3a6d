"""Files of pictures."""

import re

import pytest

from tff_xc import errors
from tff_xc.report import neighbor_pictures, pictures


@pytest.fixture(autouse=True)
def _environment(monkeypatch):
  monkeypatch.setenv(pictures._VARIABLE, '')


def draw(path):
  figure, [ax] = pictures.panels(1, 1, (3, 3))
  ax.plot([1, 2], [1, 2])
  pictures.label(ax, 'A $title_', 'rounds', 'top-1 %')
  return pictures.save(figure, path)


def test_a_picture_is_one_png_unless_more_is_asked_for(tmp_path):
  assert draw(tmp_path / 'a.png') == [tmp_path / 'a.png']
  assert draw(tmp_path / 'b.svg') == [tmp_path / 'b.svg']
  pictures.use_formats('png')
  assert draw(tmp_path / 'a.png') == [tmp_path / 'a.png']
  assert len(list(tmp_path.iterdir())) == 2


def test_pdf_and_svg_lie_beside_it_with_text_and_without_dates(tmp_path):
  pictures.use_formats('svg,pdf')
  assert pictures.formats() == ['pdf', 'svg']
  written = [draw(tmp_path / f'{name}.png') for name in 'ab']
  assert [path.name for path in written[0]] == ['a.png', 'a.pdf', 'a.svg']
  for one, other in zip(*written, strict=True):
    assert one.read_bytes() == other.read_bytes()
  text = (tmp_path / 'a.svg').read_text()
  assert re.search(r'<text [^>]*>top-1 %</text>', text)
  assert '>A $title_</text>' in text
  assert 'date' not in text.lower()
  pdf = (tmp_path / 'a.pdf').read_bytes()
  assert b'/FontFile2' in pdf  # The text of a TrueType font can be searched.
  assert b'/Type3' not in pdf


def test_a_long_name_below_a_picture_keeps_its_end():
  assert neighbor_pictures._end('photos/\x1b\x1b/emu/12.jpg').endswith('/emu/12.jpg')


@pytest.mark.parametrize('text', ['', 'jpg', 'pdf,', 'PDF', 'pdf, svg'])
def test_other_formats_are_refused(text):
  with pytest.raises(errors.InputError, match='png, pdf, svg'):
    pictures.use_formats(text)
  assert pictures.formats() == []
