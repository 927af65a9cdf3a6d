"""The file `tff_names.csv` lists the names of TFF that this repository uses.

Its column `kind` has three values. `api` is for authors of algorithms and programs, `extending` is
for authors who extend TFF (its compiler, contexts and types), and `inner` names are not public. The
column `later` says what became of the name in TFF's sources after 0.88, as docs/moving_on.md
explains: `same`, or the new name.
"""

import ast
import collections
import csv
import re

from tests import documents

SOURCES = ('tff_xc', 'datasets', 'tasks', 'launch', 'tools')
# The packages of TFF that contain the names.
PARTS = (
  'aggregators',
  'algorithms',
  'backends',
  'datasets',
  'framework',
  'learning',
  'models',
  'native',
  'optimizers',
  'program',
  'simulation',
  'structure',
  'templates',
  'tensorflow',
  'test',
  'types',
)


def dotted(node):
  """Returns ('a', 'b', 'c') for the expression a.b.c, and () for other expressions."""
  names = []
  while isinstance(node, ast.Attribute):
    names.append(node.attr)
    node = node.value
  return (node.id, *names[::-1]) if isinstance(node, ast.Name) else ()


def used(tree):
  """Returns the names of TFF that a parsed module uses. All modules import TFF as `tff`."""
  found = set()
  for node in ast.walk(tree):
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
      found |= {*re.findall(r'^tensorflow_federated\.[\w.]+$', node.value)}
    names = dotted(node)
    end = next((i for i, n in enumerate(names) if i and n not in PARTS), None)
    if end and names[0] == 'tff':
      found.add('.'.join(names[: end + 1]))
  return found


def listed():
  with (documents.ROOT / 'tests' / 'tff_names.csv').open(newline='') as file:
    return {row['name']: row for row in csv.DictReader(file)}


def test_the_list_has_what_the_sources_use_of_tff():
  found = collections.defaultdict(list)
  for path in (p for name in SOURCES for p in (documents.ROOT / name).rglob('*.py')):
    for name in used(ast.parse(path.read_text())):
      found[name].append(str(path.relative_to(documents.ROOT)))
  new = {name: found[name] for name in found.keys() - listed().keys()}
  assert not new, 'add them to tests/tff_names.csv'
  assert not listed().keys() - found.keys(), 'nobody uses these any more'


def test_the_page_counts_the_list():
  kinds = collections.Counter(row['kind'] for row in listed().values())
  assert {*kinds} == {'api', 'extending', 'inner'}
  page = documents.page('moving_on')
  for kind, count in kinds.items():
    moved = [row for row in listed().values() if row['kind'] == kind and row['later'] != 'same']
    assert re.search(rf'\| `{kind}` \| .* \| {count} \| {len(moved)} \|', page)
