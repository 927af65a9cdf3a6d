"""Converts the repository's Markdown pages to pages of the site, with the same text."""

import os
import pathlib
import re

_CODE = re.compile(r'^(```.*?^```$)', re.M | re.S)
# A link [text](target#anchor) to a file of the repository.
_LINK = re.compile(r'\[([^]]*)\]\((?!#|\w+:)([^)#\s]+)([^)\s]*)\)')
# A table that `launch.document` writes from a result file.
_RESULT = re.compile(r'<!-- (?:compare|table|benchmark) (results/[\w./-]+)(.*?)<!-- end -->', re.S)
_NAMED_RESULT = re.compile(r'`docs/(results/[\w./-]+\.(?:csv|json))`')


def converted(text: str, page: pathlib.Path, start: pathlib.Path) -> str:
  """Returns the Markdown of a page with links that work on the site.

  Links to README and CHANGELOG become links to their pages of the site. A link to a folder
  becomes a list of links to the folder's files. A table that was written from a result file
  gets a link to this file.

  Args:
    text: the page's Markdown.
    page: the absolute path of the page. Relative links in `text` start in its folder.
    start: the folder in which relative links of the result start.
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
      return found[0]  # Sphinx reports a link without a target.
    if path.is_dir():
      files = sorted(f for f in path.rglob('*') if f.is_file())
      links = (f'[{f.relative_to(path)}]({relative(f)})' for f in files)
      return f'{name} ({", ".join(links)})'
    return f'[{name}]({relative(path)}{anchor})'

  parts = _CODE.split(text)  # Prose and code blocks in turn.
  for k in range(0, len(parts), 2):
    parts[k] = _LINK.sub(link, parts[k])
    parts[k] = _NAMED_RESULT.sub(r'[`docs/\1`](\1)', parts[k])
  return _RESULT.sub(r'\g<0>\n\n[Data of this table](\1)\n', ''.join(parts))
