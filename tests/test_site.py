"""The site: its menu, its API reference, and that Sphinx builds it without a warning."""

import re

import pytest

from tests import documents, processes

ROOT = documents.ROOT
DOCS = ROOT / 'docs'
PYTHON = ROOT / '.venv-site' / 'bin' / 'python'  # `make site` creates it.


# Modules that have no section, because they are parts of modules that have one.
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


@pytest.mark.slow
@pytest.mark.skipif(not PYTHON.exists(), reason='`make site` was never run')
def test_the_site_is_whole_and_needs_no_network(tmp_path):
  where = ['-d', tmp_path / 'doctrees', DOCS, tmp_path / 'site']
  done = processes.run([PYTHON, '-m', 'sphinx', '-q', '-E', '-W', '--keep-going', *where])
  assert not done.returncode, done.stderr
  pages = {path.name: path.read_text() for path in (tmp_path / 'site').rglob('*.html')}
  assert len(pages) > len(documents.PAGES)
  for name, text in pages.items():
    loaded = re.findall(r'<(?:script|link|img)[^>]* (?:src|href)="(\w+:[^"]*)"', text)
    assert not loaded, (name, loaded)
  assert '<math' in pages['fedss.html'] and '<!-- end -->' in pages['fedss.html']
