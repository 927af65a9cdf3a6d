"""Reads README and the pages of docs/: their sections, code and links."""

import pathlib
import re

ROOT = pathlib.Path(__file__).parents[1]
README = ROOT / 'README.md'
PAGES = sorted((ROOT / 'docs').glob('*.md'))
FILES = [README, *PAGES]


def page(name):
  """Returns the text of the page docs/`name`.md."""
  return (ROOT / 'docs' / f'{name}.md').read_text()


def everything():
  """Returns the text of README and all pages without comments, because comments are not prose."""
  texts = '\n'.join(path.read_text() for path in FILES)
  return re.sub(r'<!--.*?-->', '', texts)


def section(text, heading):
  """Returns a section with its subsections. `heading` includes the '#' characters."""
  level = heading.split(' ')[0]
  after = text[text.index(f'\n{heading}\n') + 1 :]
  end = re.search(rf'^#{{1,{len(level)}}} ', after[len(level) :], re.MULTILINE)
  return after[: end.start() + len(level)] if end else after


def code(text, language=''):
  """Returns the contents of the code blocks of a language, or of blocks without a language ('')."""
  found = re.findall(r'^```(\w*)\n(.*?)^```$', text, re.DOTALL | re.MULTILINE)
  return [block for kind, block in found if kind == language]


def commands(text):
  """Returns the words of each command `python -m launch...` in code blocks."""
  lines = '\n'.join(code(text)).replace('\\\n', ' ').splitlines()
  return [line.partition('#')[0].split()[2:] for line in lines if ' -m launch.' in line]


def anchors(text):
  """Returns the anchors of a file's headings, as GitHub makes them."""
  text = re.sub(r'^```.*?^```$', '', text, flags=re.DOTALL | re.MULTILINE)
  headings = re.findall(r'^#+ (.*)$', text, re.MULTILINE)
  return {re.sub(r'[^\w\- ]', '', heading.lower()).replace(' ', '-') for heading in headings}


def links(text):
  """Returns the targets of links and pictures."""
  return re.findall(r'\]\(([^()\s]+)\)', text)
