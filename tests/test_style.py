"""Files and functions are short enough to be read as one."""

import ast
import pathlib

ROOT = pathlib.Path(__file__).parents[1]
PRODUCT = ('tff_xc', 'datasets', 'tasks', 'launch')
FUNCTION_LINES = 60
FILE_LINES = 350
ALGORITHM_LINES = 150
PROCESS_LINES = 230


def files(*packages):
  """Yields (path, text) of the packages' Python files."""
  for package in packages:
    for path in sorted((ROOT / package).rglob('*.py')):
      yield path.relative_to(ROOT), path.read_text()


def long_functions(text, limit=FUNCTION_LINES):
  """Returns (name, lines) of functions over the limit, docstrings included."""
  return [
    (node.name, lines)
    for node in ast.walk(ast.parse(text))
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    and (lines := node.end_lineno - node.lineno + 1) > limit
  ]


def defines_entry(text):
  """Whether a module has an `ENTRY`, and so is an algorithm."""
  return any(
    isinstance(target, ast.Name) and target.id == 'ENTRY'
    for node in ast.parse(text).body
    if isinstance(node, (ast.Assign, ast.AnnAssign))
    for target in getattr(node, 'targets', [getattr(node, 'target', None)])
  )


def test_a_function_fits_a_screen():
  long = [
    f'{path}: {name} has {lines} lines'
    for path, text in files(*PRODUCT)
    for name, lines in long_functions(text)
  ]
  assert not long, '\n'.join(long)


def test_a_file_is_short():
  long = [
    f'{path} has {lines} lines'
    for path, text in files(*PRODUCT, 'tests')
    if (lines := len(text.splitlines())) > FILE_LINES
  ]
  assert not long, '\n'.join(long)


def test_the_round_stays_short():
  text = (ROOT / 'tff_xc/round/process.py').read_text()
  assert len(text.splitlines()) <= PROCESS_LINES


def test_an_algorithm_is_short():
  lines = {
    path.stem: len(text.splitlines())
    for path, text in files('tff_xc/algorithms')
    if defines_entry(text)
  }
  assert {'fedss', 'fedaws'} <= set(lines)
  assert max(lines.values()) <= ALGORITHM_LINES, lines


def test_lines_are_counted_with_the_docstring_and_in_classes():
  text = (
    'class A:\n  def f(self):\n    """One.\n\n    Two.\n    """\n    return 1'
  )
  assert long_functions(text, 5) == [('f', 6)]
  assert long_functions(text, 6) == []
  assert defines_entry('ENTRY: int = 1')
  assert not defines_entry('def f():\n  ENTRY = 1')
