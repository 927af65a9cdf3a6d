"""Modules import only lower layers, also inside functions.

A layer of the library may import the layers above it in `LAYERS`. `launch` may import all packages,
and `tff_xc` imports no other package of this project.
"""

import ast
import pathlib

import launch

ROOT = pathlib.Path(__file__).parents[1]
PACKAGES = ('tff_xc', 'datasets', 'tasks', 'launch')  # From the lowest to the highest.
# From the lowest to the highest layer. Layers of the same line do not import each other.
LAYERS = (
  ('deep_messages', 'environment', 'errors', 'interrupts', 'lazy', 'lean_tensorflow', 'wording'),
  ('files', 'home', 'lock', 'memory', 'precision'),
  ('data',),
  ('encoders',),
  ('classifier', 'heads'),
  ('predictor', 'round'),
  ('measure',),
  ('report',),
  ('options',),
  ('algorithms',),
  ('experiment',),
)
# The runtime executes computations of any kind. It imports only errors, versions, homes and locks,
# and only modules that execute computations import the runtime.
RUNTIME = 'runtime'
# `classifier` may import `heads`, although both are in the same layer.
BESIDE = {('classifier', 'heads')}


def rank(layer):
  [found] = [i for i, names in enumerate(LAYERS) if layer in names]
  return found


def is_allowed(importer, imported):
  """Whether a module may import another module. Both are tuples of names."""
  if importer[0] != imported[0]:
    return PACKAGES.index(importer[0]) > PACKAGES.index(imported[0]) and (
      imported[:2] != ('tff_xc', RUNTIME) or importer[0] in ('tasks', 'launch')
    )
  if importer[0] != 'tff_xc' or imported[1:2] == importer[1:2]:
    return True
  if len(imported) == 1:
    return True  # The package itself, which imports nothing.
  upper, lower = importer[1], imported[1]
  if lower == RUNTIME:
    return upper == 'experiment'
  if upper == RUNTIME:
    return lower in ('deep_messages', 'errors', 'environment', 'home', 'lazy', 'lock')
  return rank(upper) > rank(lower) or (upper, lower) in BESIDE


def imports(tree):
  """Yields the modules that a parsed module imports, as tuples of names."""
  for node in ast.walk(tree):
    if isinstance(node, ast.Import):
      names = [name.name for name in node.names]
    elif isinstance(node, ast.ImportFrom):
      assert not node.level, 'modules are imported by their full names'
      names = [f'{node.module}.{name.name}' for name in node.names]
    else:
      continue
    yield from (parts for parts in (tuple(n.split('.')) for n in names) if parts[0] in PACKAGES)


def modules():
  for package in PACKAGES:
    for path in (ROOT / package).rglob('*.py'):
      parts = path.relative_to(ROOT).with_suffix('').parts
      yield path, parts[:-1] if parts[-1] == '__init__' else parts


def test_imports_run_downwards_only():
  upwards = [
    f'{path.relative_to(ROOT)} imports {".".join(imported)}'
    for path, importer in modules()
    for imported in imports(ast.parse(path.read_text()))
    if not is_allowed(importer, imported)
  ]
  assert not upwards, '\n'.join(upwards)


def test_no_module_imports_an_extra_before_it_is_used():
  early = [
    path
    for path, _ in modules()
    for node in ast.parse(path.read_text()).body
    if isinstance(node, ast.Import | ast.ImportFrom)
    for name in [getattr(node, 'module', None) or node.names[0].name]
    if name.partition('.')[0] in launch.EXTRAS
  ]
  assert not early
