"""The repository's pages as pages of the site, without a change to their text."""

import os
import pathlib
import re

_CODE = re.compile(r'^(```.*?^```$)', re.M | re.S)
# [text](target#anchor), except for addresses and anchors of the same page.
_LINK = re.compile(r'\[([^]]*)\]\((?!#|\w+:)([^)#\s]+)([^)\s]*)\)')
# A table that `launch.document` writes from a result file.
_RESULT = re.compile(r'<!-- (?:compare|table|benchmark) (results/[\w./-]+)(.*?)<!-- end -->', re.S)
_NAMED_RESULT = re.compile(r'`docs/(results/[\w./-]+\.(?:csv|json))`')


def converted(text: str, page: pathlib.Path, start: pathlib.Path) -> str:
  """Returns the Markdown of a page as Sphinx is to read it.

  Links to README and the change log lead to their pages of the site, a link to a
  folder to its files, and a table written from a result file gets a link to it.

  Args:
    text: the page's Markdown.
    page: its absolute path, where its relative links start.
    start: the folder where those of the result start.
  """
  docs = pathlib.Path(__file__).resolve().parent.parent
  root = docs.parent
  moved = {root / 'README.md': docs / 'index.md', root / 'CHANGELOG.md': docs / 'changes.md'}

  def relative(path):
    return os.path.relpath(moved.get(path, path), start)

  def link(found):
    name, target, anchor = found.groups()
    path = (page.parent / target).resolve()
    if not path.is_relative_to(root) or not path.exists():
      return found[0]  # Sphinx reports it.
    if path.is_dir():
      files = sorted(f for f in path.rglob('*') if f.is_file())
      links = (f'[{f.relative_to(path)}]({relative(f)})' for f in files)
      return f'{name} ({", ".join(links)})'
    return f'[{name}]({relative(path)}{anchor})'

  parts = _CODE.split(text)  # Every other one is code.
  for k in range(0, len(parts), 2):
    parts[k] = _LINK.sub(link, parts[k])
    parts[k] = _NAMED_RESULT.sub(r'[`docs/\1`](\1)', parts[k])
  return _RESULT.sub(r'\g<0>\n\n[Data of this table](\1)\n', ''.join(parts))
