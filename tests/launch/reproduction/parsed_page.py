"""Reads a page with the standard library's parser, and checks its structure."""

import html.parser
import itertools

from launch.reproduction import judge

VOID = {'br', 'img', 'meta', 'link', 'input', 'hr', 'source', 'base'}


class Page(html.parser.HTMLParser):
  """A parsed page."""

  def __init__(self, text: str):
    super().__init__()
    self.elements = []  # (tag, attributes)
    self.texts = {}  # Of every element with an id.
    self.rows, self.captions = [], []  # Cells' texts; None: without a caption.
    self._open = []
    self.feed(text)
    self.close()
    assert not self._open, self._open

  def handle_starttag(self, tag, attrs):
    attributes = dict(attrs)
    assert len(attributes) == len(attrs), attrs
    self.elements.append((tag, attributes))
    if tag == 'table':
      self.captions.append(None)
    if tag == 'tr':
      self.rows.append([])
    if tag in ('td', 'th'):
      self.rows[-1].append('')
    if name := attributes.get('id'):
      assert name not in self.texts, name
      self.texts[name] = ''
    if tag not in VOID:
      self._open.append((tag, name))

  def handle_endtag(self, tag):
    assert self._open.pop()[0] == tag, (tag, self.getpos())

  def handle_data(self, data):
    tags = [tag for tag, _ in self._open]
    for _, name in self._open:
      if name:
        self.texts[name] += data
    if 'caption' in tags:
      self.captions[-1] = (self.captions[-1] or '') + data
    if {'td', 'th'} & set(tags):
      self.rows[-1][-1] += data

  def values(self, tag, attribute):
    """Returns an attribute of all elements of a tag that have it."""
    return [
      a[attribute] for t, a in self.elements if t == tag and attribute in a
    ]

  def verdicts(self):
    """Returns the numbers of the verdicts that the page of results shows."""
    return {
      row[0].split(' ', 1)[1]: int(row[1])
      for row in self.rows
      if row[0].split(' ', 1)[-1] in set(judge.Verdict)
    }

  def assert_sound(self):
    """Asserts what readers by ear and by keyboard need."""
    for _, attributes in self.elements:
      if name := attributes.get('aria-labelledby'):
        assert self.texts[name].strip(), name
    for address in self.values('a', 'href'):
      if address.startswith('#'):
        assert address[1:] in self.texts, address
    levels = [
      int(t[1]) for t, _ in self.elements if t in ('h1', 'h2', 'h3', 'h4')
    ]
    assert levels.count(1) == 1
    assert all(
      lower - upper <= 1 for upper, lower in itertools.pairwise(levels)
    )
    assert all(self.captions)
    assert all('scope' in a for t, a in self.elements if t == 'th')
    assert all(a['alt'] for t, a in self.elements if t == 'img')
    tags = [t for t, _ in self.elements]
    assert all(tags.count(t) == 1 for t in ('header', 'nav', 'main', 'footer'))
    first = next(a for t, a in self.elements if t == 'a')
    assert first['class'] == 'skip'
