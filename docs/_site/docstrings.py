"""The package's docstrings, which are plain text, as reStructuredText."""

import ast
import inspect
import re
import textwrap

_SECTION = re.compile(r'(Args|Attributes|Fields|Returns|Raises|Yields):$')
_ITEM = re.compile(r' *([-*]|\d+[.)]) ')
_NAMED = re.compile(r'( +\*{0,2}\w+: )(.*)')
_DOTTED = re.compile(r'[A-Za-z_]\w*(\.\w+)*$')


def as_rst(lines: list[str]) -> list[str]:
  """Returns a docstring as reStructuredText with Google's sections.

  Indented lines outside of lists and sections are shown as they are, as equations
  and tables are meant to be; what is special in reStructuredText is escaped.
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
  """Marks the ends of code, which may span two lines, and of flags by '\\0'."""
  text = re.sub(
    r'`([^`]+)`|(?<![\w-])(--\w+)',
    lambda found: f'\0{" ".join((found[1] or found[2]).split())}\0',
    '\n'.join(lines),
  )
  return text.split('\n')


def _escaped(text: str) -> str:
  """Escapes prose, and refers to the objects that code names."""
  parts = text.split('\0')
  for k, part in enumerate(parts):
    if k % 2:
      name = part.removesuffix('()')
      # A leading dot finds the object in any module.
      dot = '.' if '.' in name and not name.startswith(('tff.', 'tf.')) else ''
      code = f'`{dot}{name}`' if _DOTTED.match(name) else f'``{part}``'
      # Code ends at a space only; this one is not shown.
      parts[k] = code if parts[k + 1][:1] in ('', ' ') else code + '\\ '
    else:
      parts[k] = re.sub(r'([\\*|_])', r'\\\1', part)
  # A line such as 'n.' is not the first item of a list.
  return re.sub(r'^( *\w+)(?=[.)]( |$))', r'\1\\', ''.join(parts))


def fields(cls: type) -> list[str]:
  """Returns a section on the fields of a class, from the comments beside them.

  It is empty for a class whose docstring has one. A class of hyper-parameters has
  those that it declares.
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
  """Returns a builder's docstring without what that of its class says."""
  args = lines[lines.index('Args:') + 1 :]
  others = [a for a in args if a.split(':')[0].strip() not in cls.names]
  told = f'The hyper-parameters are those of `{cls.__name__}` and its bases.'
  return [lines[0], '', told, '', 'Args:', *others]
