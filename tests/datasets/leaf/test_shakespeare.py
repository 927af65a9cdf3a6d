"""Tests Shakespeare from LEAF's JSON and from Project Gutenberg's text."""

import shutil

import numpy as np
import pytest

from datasets.leaf import files as leaf_files, sets, shakespeare, users as leaf_users
from tests.datasets.leaf import on_disk
from tff_xc import errors

TEXT = (
  'Now is the winter of our discontent made glorious summer by this sun of York;'
  " And all the clouds that lour'd upon our house In the deep bosom of the"
  ' ocean buried.'
)


def load(data_dir, **options):
  return sets.load('shakespeare', data_dir, **{'min_examples': 1, **options})


def decoded(codes):
  return ''.join(shakespeare.ALPHABET[c] for c in codes)


def windows(text):
  """Returns (x, y) like LEAF's scripts."""
  places = range(len(text) - 80)
  return [text[i : i + 80] for i in places], [text[i + 80] for i in places]


def users():
  """Returns the texts of 10 users."""
  return {f'P_{i}': TEXT[i : 95 + 7 * i] for i in range(10)}


def write_json(data_dir, texts):
  on_disk.write(
    data_dir / 'shakespeare/data/all_data/all_data.json',
    {name: windows(text) for name, text in texts.items()},
  )


def check(dataset, texts):
  for name in dataset.train.client_ids:
    x, y = dataset.train.examples(name)
    assert x.dtype == np.uint8
    assert list(map(decoded, x)) == windows(texts[name])[0]
    assert decoded(y) == ''.join(windows(texts[name])[1])


def test_json(tmp_path, capsys, monkeypatch):
  write_json(tmp_path, users())
  dataset = load(tmp_path)
  assert dataset.num_classes == 80
  assert len(dataset.train.client_ids) == 9
  check(dataset, users())
  monkeypatch.setattr(leaf_users, 'read_all', None)
  again = load(tmp_path).train.pool
  check(load(tmp_path), users())
  assert not capsys.readouterr().err
  # Reading the texts gives the same examples.
  pool, of_text = shakespeare.from_texts('x', [tmp_path], lambda: users().items())
  assert of_text.names == list(users())
  np.testing.assert_array_equal(pool.labels, again.labels)
  some = np.arange(len(pool))[::-1]
  np.testing.assert_array_equal(pool.read(some), again.read(some))


def test_unknown_characters_become_spaces(tmp_path, capsys):
  texts = users()
  texts['P_1'] = texts['P_1'][:90] + '\né' + texts['P_1'][92:]
  write_json(tmp_path, texts)
  dataset = load(tmp_path)
  texts['P_1'] = texts['P_1'].replace('\n', ' ').replace('é', ' ')
  check(dataset, texts)
  assert 'outside the alphabet' in capsys.readouterr().err


@pytest.mark.parametrize(
  ('x', 'y', 'said'),
  [
    *((x, 'b', 'x has') for x in ('a' * 79, 'a' * 81, [1] * 80, None)),
    *(('a' * 80, y, 'y has') for y in ('bc', '', 3)),
  ],
)
def test_what_is_wrong_is_said(tmp_path, x, y, said):
  on_disk.write(tmp_path / 'shakespeare/all_data.json', {'a': ([x], [y])})
  with pytest.raises(errors.InputError, match=f"json, user 'a': {said} "):
    load(tmp_path)


PLAYS = """The first line is dropped
by William Shakespeare

  NOBODY. This is the table of contents.

1603

ALLS WELL

by William Shakespeare


Dramatis Personae
  KING. One
    and two,
        indented.
   Three is no continuation
    but this is four.
  Queen of All. Five
    six
    seven
  king. eight
  FOOL. nine
    ten
1592

THE COMEDY OF ERRORS


by William Shakespeare

ACT I. Scene one
not said by anybody
DUKE. Eleven
twelve
<<THIS ELECTRONIC VERSION>>
nor this

EGEON. thirteen
  fourteen
ACT II. Scene two
nor this
DUKE. fifteen
1609

A LOVER'S COMPLAINT

by William Shakespeare
  POET. Alone
    in a
    play
"""


def test_plays_and_speakers(monkeypatch):
  # The fool has only two lines, and the poet is the only role in the play.
  duke = 'THE_COMEDY_OF_ERRORS_DUKE'
  expected = {
    'ALLS_WELL_KING': 'One\nand two,\n    indented.\nbut this is four.\neight\n',
    'ALLS_WELL_QUEEN_OF_ALL': 'Five\nsix\nseven\n',
    duke: "Eleven\ntwelve\nfifteen\n1609\n\nA LOVER'S COMPLAINT\n\n",
  }
  assert shakespeare.roles(PLAYS) == expected
  # Lines after the plays are ignored.
  last = PLAYS.splitlines()[1:].index('DUKE. fifteen')
  monkeypatch.setattr(shakespeare, '_LAST_LINE', last)
  assert shakespeare.roles(PLAYS)[duke] == 'Eleven\ntwelve\nfifteen\n'


@pytest.mark.parametrize('text', ['', 'abc\n', PLAYS[:200]])
def test_a_text_without_plays(tmp_path, text):
  path = tmp_path / 'pg100.txt'
  path.write_text(text)
  with pytest.raises(errors.InputError, match=r'pg100.txt: no play with two'):
    load(tmp_path)


def test_the_whole_text(data_dir, capsys):
  """Checks LEAF's published numbers: 1,129 users, 4,226,158 examples, 3743.2, 6212.3."""
  dataset = load(data_dir)
  assert len(dataset.train.client_ids) == 1016
  assert len(dataset.train.pool) == 4_226_158
  sizes = dataset.train.partition.sizes
  assert len(dataset.train.pool) == sizes.sum() + len(dataset.test)
  _, found = shakespeare.from_texts('shakespeare', [leaf_files.find_shakespeare(data_dir)], None)
  assert len(found.names) == 1129
  np.testing.assert_allclose(found.sizes.mean(), 3743.2, atol=0.1)
  np.testing.assert_allclose(found.sizes.std(), 6212.3, atol=0.1)
  x, y = dataset.train.examples('ALLS_WELL_THAT_ENDS_WELL_COUNTESS')
  assert decoded(x[0]) + decoded(y[:8]) == (
    'In delivering my son from me, I bury a second husband. What hope is there of his Majesty'
  )
  assert not capsys.readouterr().err  # All characters are in the alphabet.


def test_where_the_text_may_lie(tmp_path, data_dir):
  with pytest.raises(errors.InputError, match=r'or put pg100.txt or .* there'):
    leaf_files.find_shakespeare(tmp_path)
  source = data_dir / 'gutenberg/pg100.txt.gz'
  for place in ('shakespeare/data/raw_data', 'shakespeare', 'gutenberg', '.'):
    (tmp_path / place).mkdir(parents=True, exist_ok=True)
    copy = shutil.copy(source, tmp_path / place)
    assert str(leaf_files.find_shakespeare(tmp_path)) == str(copy)
    (tmp_path / place / source.name).unlink()
  write_json(tmp_path, users())
  shutil.copy(source, tmp_path)
  assert leaf_files.find_shakespeare(tmp_path).all  # JSON files take precedence.
