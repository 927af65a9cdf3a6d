"""BUILD files must name the files of the tree and the packages that these files import.

Bazel copies into a target's sandbox only the files that its BUILD file names. If a test imports a
package that the BUILD file does not name, the test fails only under Bazel.
"""

import ast
import pathlib
import re

import pytest

from tests import processes

ROOT = pathlib.Path(__file__).parents[1]
PACKAGES = ('datasets', 'launch', 'tasks', 'tests', 'tff_xc')
# The parts of tests/ that run commands of the checkout; see tests/BUILD.bazel.
CHECKOUT_ONLY = {
  'launch',
  'tools',
  'test_documentation',
  'test_documentation_names',
  'test_documentation_numbers',
  'test_bazel',
  'test_imports',
  'test_install',
  'test_notebooks',
  'test_site',
  'test_style',
  'test_tff_names',
  'test_wheel',
}


def calls(package):
  """Returns the rules of a BUILD file, as pairs of the rule's name and its arguments."""
  tree = ast.parse((ROOT / package / 'BUILD.bazel').read_text())
  return [
    (node.func.id, {word.arg: word.value for word in node.keywords})
    for node in ast.walk(tree)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
  ]


def strings(node):
  return [
    found.value
    for found in ast.walk(node)
    if isinstance(found, ast.Constant) and isinstance(found.value, str)
  ]


def library(package):
  [rule] = [words for name, words in calls(package) if name == 'py_library']
  return rule


@pytest.mark.parametrize('package', [p for p in PACKAGES if p != 'tests'])
def test_a_library_has_all_its_other_files(package):
  listed = processes.run(['git', 'ls-files', package], cwd=ROOT)
  others = {
    ROOT / line for line in listed.stdout.splitlines() if not line.endswith(('.py', 'BUILD.bazel'))
  }
  data = library(package).get('data')
  named = set()
  for pattern in strings(data) if data else ():
    named |= {p for p in (ROOT / package).glob(pattern) if p.suffix != '.py'}
  assert others == named
  assert package != 'launch' or len(others) > 5


def imported(path):
  """Returns the packages of this project that a file imports, also inside functions."""
  found = set()
  for node in ast.walk(ast.parse(path.read_text())):
    if isinstance(node, ast.Import):
      found |= {name.name.split('.')[0] for name in node.names}
    elif isinstance(node, ast.ImportFrom) and not node.level:
      found.add(node.module.split('.')[0])
  return found & set(PACKAGES)


@pytest.mark.parametrize('package', PACKAGES)
def test_a_library_has_its_python_files_and_the_packages_that_they_import(package):
  files = set()
  for pattern in strings(library(package)['srcs']):
    files |= set((ROOT / package).glob(pattern))
  assert files == set((ROOT / package).rglob('*.py'))
  needed = set().union(*map(imported, files)) - {package}
  deps = library(package).get('deps')
  assert {f'//{name}' for name in needed} == set(strings(deps) if deps else [])


@pytest.mark.parametrize(('name', 'pattern'), [('FOLDERS', '*/test_*.py'), ('FILES', 'test_*.py')])
def test_every_test_has_a_target_or_drives_the_checkout(name, pattern):
  tests = ROOT / 'tests'
  text = (tests / 'BUILD.bazel').read_text()
  [listed] = re.findall(rf'^{name} = \[(.*?)\]', text, re.DOTALL | re.MULTILINE)
  found = {path.relative_to(tests).parts[0].removesuffix('.py') for path in tests.glob(pattern)}
  expected = {part.removeprefix('test_') for part in found - CHECKOUT_ONLY}
  assert sorted(expected) == re.findall(r'"(\w+)"', listed)
