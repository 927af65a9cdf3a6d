"""The site: pages as it reads them, docstrings as reStructuredText, and the whole."""

import html.parser
import pathlib
import re
import urllib.parse

import pytest

from tests import documents, processes

ROOT = documents.ROOT
DOCS = ROOT / 'docs'
PYTHON = ROOT / '.venv-site' / 'bin' / 'python'  # `make site` creates it.


def test_every_page_has_its_place_in_the_menu():
  listed = (DOCS / 'index.md').read_text().splitlines()
  for page in documents.PAGES:
    assert page.stem == 'index' or page.stem in listed


# Parts of modules that are listed.
INNER = {
  'algorithms.spreadout',
  'algorithms.svm',
  'algorithms.svm_kernel',
  'experiment.same_run',
  'measure.catalog',
  'measure.hashed_labels',
  'measure.search',
}


def test_the_reference_lists_every_module():
  text = ''.join(page.read_text() for page in (DOCS / 'api').glob('*.md'))
  listed = set(re.findall(r'automodule:: tff_xc\.(\S+)', text))
  folders = 'algorithms', 'data', 'experiment', 'measure', 'options', 'runtime'
  modules = {
    f'{folder}.{path.stem}'
    for folder in folders
    for path in (ROOT / 'tff_xc' / folder).glob('*.py')
    if path.stem != '__init__'
  }
  assert modules - listed == INNER
  index = (DOCS / 'api' / 'index.md').read_text()
  for page in (DOCS / 'api').glob('*.md'):
    assert page.stem == 'index' or f'\n{page.stem}\n' in index


class _Page(html.parser.HTMLParser):
  """The anchors of a page, and what it refers to: (attribute, address)."""

  def __init__(self, path: pathlib.Path):
    super().__init__()
    self.anchors, self.addresses = set(), []
    self.feed(path.read_text())

  def handle_starttag(self, tag, attrs):
    for name, value in attrs:
      if name == 'id':
        self.anchors.add(value)
      elif name in ('href', 'src') and value:
        self.addresses.append((tag, value))


@pytest.mark.slow
@pytest.mark.skipif(not PYTHON.exists(), reason='`make site` was never run')
def test_the_site_is_whole_and_needs_no_network(tmp_path):
  where = ['-d', tmp_path / 'doctrees', DOCS, tmp_path / 'site']
  done = processes.run([PYTHON, '-m', 'sphinx', '-q', '-E', '-W', '--keep-going', *where])
  assert not done.returncode, done.stderr
  root = tmp_path / 'site'
  found = {path: _Page(path) for path in root.rglob('*.html')}
  assert len(found) > len(documents.PAGES)
  for path, page in found.items():
    for tag, address in page.addresses:
      at = urllib.parse.urlsplit(address)
      if at.scheme:
        assert tag == 'a', (path, address)  # Nothing is loaded from elsewhere.
        continue
      target = (path.parent / urllib.parse.unquote(at.path)).resolve()
      target = target if at.path else path
      assert target.is_file(), (path, address)
      if at.fragment and target in found:
        assert at.fragment in found[target].anchors, (path, address)
  fedss_page = (root / 'fedss.html').read_text()
  assert '<math' in fedss_page and '<!-- end -->' in fedss_page
