"""README and the pages of docs/, their sections, code and links."""

import pathlib
import re

ROOT = pathlib.Path(__file__).parents[1]
README = ROOT / 'README.md'
PAGES = sorted((ROOT / 'docs').glob('*.md'))
FILES = [README, *PAGES]


def page(name):
  """Returns the text of a page of docs/, without '.md'."""
  return (ROOT / 'docs' / f'{name}.md').read_text()


def everything():
  """Returns the text of all files, without comments, which hold no prose."""
  texts = '\n'.join(path.read_text() for path in FILES)
  return re.sub(r'<!--.*?-->', '', texts)


def section(text, heading):
  """Returns a section with its sub-sections; `heading` has its '#'s."""
  level = heading.split(' ')[0]
  after = text[text.index(f'\n{heading}\n') + 1 :]
  end = re.search(rf'^#{{1,{len(level)}}} ', after[len(level) :], re.MULTILINE)
  return after[: end.start() + len(level)] if end else after


def code(text, language=''):
  """Returns the contents of the code blocks of a language; '': of none."""
  found = re.findall(r'^```(\w*)\n(.*?)^```$', text, re.DOTALL | re.MULTILINE)
  return [block for kind, block in found if kind == language]


def commands(text):
  """Returns the words of each command of Python modules in code blocks."""
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
