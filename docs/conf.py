"""Configures Sphinx, which builds the site from README, the pages and the docstrings.

We use Sphinx because it checks every link, reads docstrings (autodoc), and reads the
Markdown of code hosts (MyST). The theme furo fits phones and dark screens, and loads
nothing from the network. autodoc imports the package, with placeholders for TensorFlow
and other libraries. By importing the package, autodoc sees the signatures of builders,
which are created at import.
"""

import pathlib
import re
import sys
import types
import typing

from docutils import nodes
from docutils.utils.math import latex2mathml
from sphinx.ext.autodoc.mock import _MockObject
from sphinx.util import inspect

DOCS = pathlib.Path(__file__).resolve().parent
ROOT = DOCS.parent
sys.path[:0] = [str(ROOT), str(DOCS / '_site')]

import docstrings  # noqa: E402
import pages  # noqa: E402

project = html_title = 'tff_xc'
author = copyright = 'The tff_xc authors'
extensions = ['myst_parser', 'sphinx.ext.autodoc', 'sphinx.ext.napoleon']
exclude_patterns = ['results']
default_role = 'py:obj'
highlight_language = 'none'
smartquotes_action = 'D'  # Replace only dashes, not quotes.

myst_enable_extensions = ['dollarmath']
myst_heading_anchors = 5

# The libraries that the package imports, except Python's standard library.
_LIBRARY = re.compile(r'^ *(?:from (?=[\w.]+ import)|import )(?!tff_xc)(\w+)', re.M)
autodoc_mock_imports = sorted(
  {name for path in (ROOT / 'tff_xc').rglob('*.py') for name in _LIBRARY.findall(path.read_text())}
  - sys.stdlib_module_names
)
autodoc_default_options = {'members': True}
autodoc_inherit_docstrings = False
autodoc_member_order = 'bysource'
autodoc_typehints_format = 'short'
python_use_unqualified_type_names = True
napoleon_custom_sections = [('Fields', 'params_style')]
suppress_warnings = ['ref.python']  # Several modules may define the same name.

html_theme = 'furo'
html_static_path = ['_static']
html_css_files = ['site.css']
html_math_renderer = 'mathml'
html_copy_source = False
html_show_sphinx = False

_SHORT = {'numpy.': 'np.', 'tensorflow.': 'tf.', 'tensorflow_federated.': 'tff.'}
_MODULE = re.compile('|'.join(map(re.escape, _SHORT)))
_OBJECT = re.compile(r'<([^<>]|<\w+>)*>')  # Such as '<function <lambda>>'.
# An empty module replaces `tff_xc/__init__.py`, whose code needs TensorFlow.
package = sys.modules['tff_xc'] = types.ModuleType('tff_xc')
package.__path__ = [str(ROOT / 'tff_xc')]


def _either(self, other):
  """Implements `|` of placeholders, for annotations such as `np.ndarray | None`."""
  return typing.Union[self, other]  # noqa: UP007


_MockObject.__or__ = _MockObject.__ror__ = _either


def _read_page(app, name, source):
  """Converts a page. Puts README before the text of index.md, and CHANGELOG into changes.md."""
  page = DOCS / f'{name}.md'
  above = {'index': ROOT / 'README.md', 'changes': ROOT / 'CHANGELOG.md'}
  parts = [above[name]] if name in above else []
  source[0] = '\n'.join(
    pages.converted(path.read_text(), path, page.parent) for path in [*parts, page]
  )


def _read_docstring(app, what, name, obj, options, lines):
  if what == 'class' and obj.__module__.startswith('tff_xc.'):
    lines += docstrings.fields(obj)
  if what == 'function' and name.startswith('tff_xc.algorithms.'):
    from tff_xc.algorithms import registry

    if cls := registry.ALGORITHMS.get(name.partition('.build_')[2]):
      lines[:] = docstrings.of_builder(lines, cls)
  lines[:] = docstrings.as_rst(lines)


def _signature(app, what, name, obj, options, signature, returned):
  """Abbreviates the names of libraries, and removes signatures without information."""
  if what == 'class' and issubclass(obj, _MockObject):
    shown = inspect.signature(obj.__init__, bound_method=True)
    signature = inspect.stringify_signature(shown, unqualified_typehints=True)
  # Users call an algorithm's builder instead of its class, and create no protocols.
  if hasattr(obj, 'hyperparameters') or getattr(obj, '_is_protocol', False):
    signature = ''
  return tuple(
    text and _MODULE.sub(lambda found: _SHORT[found[0]], _OBJECT.sub('...', text))
    for text in (signature, returned)
  )


def _skip(app, what, name, obj, skip, options):
  """Skips fields of named tuples, because the page describes them with their class."""
  return True if (obj.__doc__ or '').startswith('Alias for field') else None


# LaTeX commands that docutils does not know, or whose characters few fonts have.
_TEX = {r'\big(': r'\bigl(', r'\big)': r'\bigr)', r'\setminus': r'\backslash'}


def _math(translator, node):
  """Writes an equation as MathML, which browsers show without a script."""
  block = isinstance(node, nodes.math_block)
  tex = node.astext()
  for name, known in _TEX.items():
    tex = tex.replace(name, known)
  made = latex2mathml.tex2mathml(tex, as_block=block)
  translator.body.append(f'<div class="math">{made}</div>' if block else made)
  raise nodes.SkipNode


def setup(app):
  app.connect('source-read', _read_page)
  # Priority 400 runs this function before napoleon, which reads the sections.
  app.connect('autodoc-process-docstring', _read_docstring, priority=400)
  app.connect('autodoc-process-signature', _signature)
  app.connect('autodoc-skip-member', _skip)
  app.add_html_math_renderer('mathml', (_math, None), (_math, None))
