"""Converts the package's docstrings, which are plain text, to reStructuredText."""

import ast
import inspect
import re
import textwrap

_SECTION = re.compile(r'(Args|Attributes|Fields|Returns|Raises|Yields):$')
_ITEM = re.compile(r' *([-*]|\d+[.)]) ')
_NAMED = re.compile(r'( +\*{0,2}\w+: )(.*)')
_DOTTED = re.compile(r'[A-Za-z_]\w*(\.\w+)*$')


def as_rst(lines: list[str]) -> list[str]:
  """Returns the lines of a docstring as reStructuredText with Google's sections.

  Indented lines outside of lists and sections become literal blocks, because they are
  equations or tables. In other lines, the special characters of reStructuredText are
  escaped.
  """
  result, where = [], 'text'
  for line in _inline_code(lines):
    indented = line.startswith(' ')
    if not line.strip():
      result.append('')
      continue
    if _SECTION.match(line):
      where = 'section'
      result += ['', line.replace('Attributes', 'Fields')]
      continue
    if not indented and not _ITEM.match(line):
      if where != 'text':
        result.append('')
      where = 'text'
    elif where == 'text' or (where == 'literal' and not indented):
      where = 'list' if _ITEM.match(line) else 'literal'
      result += ['', '::', ''] if where == 'literal' else ['']
    if where == 'literal':
      result.append(line.replace('\0', '`'))
      continue
    head, rest = '', line
    if where == 'section' and (found := _NAMED.match(line)):
      head, rest = found.groups()
    elif found := _ITEM.match(line):
      head, rest = found[0], line[found.end() :]
    result.append(head + _escaped(rest))
  return result


def _inline_code(lines):
  """Puts '\\0' before and after code in backticks and flags. Code may span two lines."""
  text = re.sub(
    r'`([^`]+)`|(?<![\w-])(--\w+)',
    lambda found: f'\0{" ".join((found[1] or found[2]).split())}\0',
    '\n'.join(lines),
  )
  return text.split('\n')


def _escaped(text: str) -> str:
  """Escapes prose, and turns names of Python objects in code into links."""
  parts = text.split('\0')
  for k, part in enumerate(parts):
    if k % 2:
      name = part.removesuffix('()')
      # With a leading dot, Sphinx looks for the object in all modules.
      dot = '.' if '.' in name and not name.startswith(('tff.', 'tf.')) else ''
      code = f'`{dot}{name}`' if _DOTTED.match(name) else f'``{part}``'
      # In reStructuredText, code must end before a space. An escaped space is not shown.
      parts[k] = code if parts[k + 1][:1] in ('', ' ') else code + '\\ '
    else:
      parts[k] = re.sub(r'([\\*|_])', r'\\\1', part)
  # Escape a line such as 'n.', which would begin a list.
  return re.sub(r'^( *\w+)(?=[.)]( |$))', r'\1\\', ''.join(parts))


def fields(cls: type) -> list[str]:
  """Returns the lines of a section about the fields of a class.

  The section of an algorithm's class lists the hyperparameters that the class declares.
  Other sections consist of the comments on fields in the source. The result is empty if
  the docstring of the class describes the fields.
  """
  if 'Attributes:' in (cls.__doc__ or ''):
    return []
  told = _hyperparameters(cls) or _comments(cls)
  lines = [f'  {name}: {text}' for name, text in told.items() if text]
  return ['', 'Fields:', *lines] if lines else []


def _hyperparameters(cls) -> dict[str, str]:
  declared = inspect.get_annotations(cls)
  told = {}
  for h in getattr(cls, 'hyperparameters', ()):
    if h.name in declared:
      bounds = f', {h.bounds}' if h.bounds else ''
      told[h.name] = f'{h.help} (default {cls.defaults[h.name]!r}{bounds}).'
  return told


def _comments(cls) -> dict[str, str]:
  source = textwrap.dedent(inspect.getsource(cls)).splitlines()
  told = {}
  for node in ast.parse('\n'.join(source)).body[0].body:
    if not isinstance(node, ast.AnnAssign) or node.target.id.startswith('_'):
      continue
    beside = re.search(r'  # (.*)', source[node.end_lineno - 1])
    above, k = [], node.lineno - 2
    while source[k].lstrip().startswith('# '):
      above.insert(0, source[k].strip().removeprefix('# '))
      k -= 1
    told[node.target.id] = beside[1] if beside else ' '.join(above)
  return told


def of_builder(lines: list[str], cls: type) -> list[str]:
  """Returns a builder's docstring without the hyperparameters that its class describes."""
  args = lines[lines.index('Args:') + 1 :]
  others = [a for a in args if a.split(':')[0].strip() not in cls.names]
  told = f'The builder takes the hyperparameters of `{cls.__name__}` and its base classes.'
  return [lines[0], '', told, '', 'Args:', *others]
