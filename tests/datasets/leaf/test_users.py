"""Reads LEAF's JSON with any order of keys and small buffers, and refuses malformed files."""

import json

import pytest

from datasets.leaf import users as leaf_users
from tests.datasets.leaf import on_disk
from tff_xc import errors

DATA = {
  'ann': ([[0.5, 1], [0.25, 0.0]], [3, 1]),
  'bob "}{" \\': (['a}b', '"]}'], ['}', '{']),
  'empty': ([], []),
}


def read(path):
  return leaf_users.read_all([path], lambda x, y, _: (x, y))


@pytest.mark.parametrize('indent', [None, 2])
def test_reads_what_was_written(tmp_path, indent):
  path = tmp_path / 'a.json'
  for order in (1, -1):  # Reverse the order of the keys, and then of the users.
    keys = ('users', 'num_samples', 'user_data')[::order]
    content = on_disk.content(DATA, keys)
    for key in ('users', 'num_samples'):
      content[key] = content[key][::order]
    content = {'hierarchies': [['x', {}]], 'version': 12345, **content}
    path.write_text(json.dumps(content, indent=indent))
    found = read(path)
    assert list(found) == list(DATA)[::order]
    assert found == DATA


GOOD = json.dumps(on_disk.content({'ann': ([[0.5]] * 9, list(range(9)))}))
TWO = on_disk.content({'ann': ([[1]], [1]), 'bob': ([[2]], [2])})


def changed(**parts):
  return json.dumps(TWO | parts)


@pytest.mark.parametrize(
  ('text', 'said'),
  [
    ('', 'cut short'),
    ('hello', 'no JSON'),
    ('{}', 'an object with "users"'),
    (GOOD[:40], 'cut short'),
    (GOOD[:-1], 'cut short'),
    (GOOD + ' {}', 'no JSON'),
    (GOOD.replace('[0.5]', '[0.5 0.5]', 1), 'no JSON'),
    (GOOD.replace('"users"', '"people"'), 'users'),
    (GOOD.replace('"user_data"', '"data"'), "'ann'"),
    (GOOD.replace('"x"', '"z"'), "'ann'"),
    (GOOD.replace('"y": [', '"y": [7, '), "'ann'"),
    (changed(user_data={'ann': TWO['user_data']['ann']}), "'bob'"),
    (changed(users=['ann'], num_samples=[1]), "'bob'"),
    (changed(users=['ann', 'ann', 'bob'], num_samples=[1, 1, 1]), 'users'),
    (changed(users=[1, 2]), 'users'),
    (changed(users=[['ann'], ['bob']]), 'users'),
    (changed(user_data={'ann': [], 'bob': []}), "'ann'"),
    (GOOD.replace('"user_data": {', '"user_data": {"ann":{"x":[],"y":[]},'), 'there twice'),
  ],
)
def test_what_is_wrong_is_said(tmp_path, text, said):
  (tmp_path / 'a.json').write_text(text)
  with pytest.raises(errors.InputError, match=said) as e:
    read(tmp_path / 'a.json')
  assert str(tmp_path / 'a.json') in str(e.value)
  assert '\n' not in str(e.value)
