"""Clients of one's own data, as --split says."""

import numpy as np
import pytest

from datasets import examples
from datasets.splits import own
from tff_xc import errors

LABELS = np.array([0, 1, 2] * 8, np.int32)


def labelled(**changes):
  settings = {'class_names': ['a', 'b', 'c'], 'ids': range(24), **changes}
  return examples.Examples(LABELS, **settings)


def parts(data, **choice):
  return own.parts(data, own.Choice(**choice), 'mine', 'do this, or ')


WHOSE = {
  'users': np.arange(24, dtype=np.int32) % 4 - 1,  # -1 is nobody.
  'user_names': ['u10', 'u9', 'x'],
}


def test_every_example_is_in_one_place():
  data = labelled(**WHOSE)
  for choice, everyone in (
    ({}, 18),
    ({'split': 'class'}, 24),
    ({'split': 'iid:5'}, 24),
    ({'split': 'dirichlet:concentration=0.5,clients=4'}, 24),
    ({'test_fraction': 0.25}, 18),
    ({'split': 'class', 'test_fraction': 0.25}, 24),
  ):
    clients, test, _ = parts(data, **choice)
    everything = [*clients.numbers, *([] if test is None else test)]
    assert len(set(everything)) == len(everything) == everyone
    if 'test_fraction' in choice:
      assert set(LABELS[test]) == {0, 1, 2}
      assert 4 <= len(test) <= 7
  clients, *_ = parts(data)
  assert clients.client_ids == ['u10', 'u9', 'x']
  assert clients.of_client(1).tolist() == [2, 6, 10, 14, 18, 22]


def test_a_client_has_its_own_of_the_test():
  tested = np.array([0, 2, 3, 6, 7, 11, 15, 19, 23])  # All of x, one of nobody.
  data = labelled(**WHOSE, test=tested)
  clients, _, held_out = parts(data)
  assert held_out.client_ids == clients.client_ids == ['u10', 'u9']
  assert [held_out.of_client(k).tolist() for k in (0, 1)] == [[], [2, 6]]
  assert parts(labelled(**WHOSE)).held_out is None
  assert parts(data, split='class').held_out is None
  _, test, held_out = parts(data, test_examples=4)
  assert set(held_out.numbers) == {2, 6} & set(test)


def test_test_examples_of_the_data_do_not_train():
  data = labelled(test=np.arange(3, 24, 2))
  for split in ('class', 'iid:2'):
    clients, test, _ = parts(data, split=split, test_examples=50)
    assert not set(clients.numbers) & set(data.test)
    assert test.tolist() == data.test.tolist()
  clients, test, _ = parts(data, split='class', test_examples=5)
  assert len(set(test)) == 5
  assert set(test) < set(data.test)
  assert not set(clients.numbers) & set(data.test)
  again = parts(data, split='iid:2', seed=1, test_examples=5)[1]
  np.testing.assert_array_equal(again, test)


def write(path, *lines):
  path.write_text('\n'.join([*lines, '']))
  return str(path)


def test_ids_and_classes_in_another_normal_form(tmp_path):
  data = labelled(
    ids=examples.texts([[f'u\u0308{i}' for i in range(24)]]),
    class_names=['a', 'e\u0301', 'c'],
  )
  split = write(
    tmp_path / 's.csv',
    'user_id,image_id,class',
    '9,\u00fc1,\u00e9',
    '9,\u00fc3,a',
  )
  clients, *_ = parts(data, split=split)
  assert clients.numbers.tolist() == [1, 3]


def test_a_file_says_who_has_what(tmp_path):
  split = write(
    tmp_path / 's.csv', 'user_id,image_id,class', '9,0,a', '10,4,b', 'NA,1,b'
  )
  test = write(tmp_path / 't.csv', 'image_id,class', '5,c')
  clients, found, _ = parts(labelled(), split=split, test_file=test)
  assert clients.client_ids == ['9', '10']
  assert clients.numbers.tolist() == [0, 4]
  assert found.tolist() == [5]
  clients, found, _ = parts(labelled(), split='class', test_file=test)
  assert (len(clients.numbers), found.tolist()) == (23, [5])


@pytest.mark.parametrize(
  ('lines', 'message'),
  [
    (['u,1,b', 'u,0,b'], "line 3: .*'b' here and 'a' in mine"),
    (['u,24,a'], "line 2 .* '24', and mine has no such"),
    (['u,0,'], 'no class'),
  ],
)
def test_a_file_that_does_not_fit_is_refused(tmp_path, lines, message):
  split = write(tmp_path / 's.csv', 'user_id,image_id,class', *lines)
  with pytest.raises(errors.InputError, match=message):
    parts(labelled(), split=split)


def test_numbers_of_classes_stand_for_their_names(tmp_path):
  split = write(tmp_path / 's.csv', 'user_id,image_id,class', 'u,0,0', 'u,5,2')
  clients, *_ = parts(labelled(), split=split)
  assert clients.numbers.tolist() == [0, 5]


def test_an_example_is_not_for_training_and_for_the_test(tmp_path):
  split = write(tmp_path / 's.csv', 'user_id,image_id,class', 'u,0,a', 'u,1,b')
  test = write(tmp_path / 't.csv', 'image_id,class', '1,b')
  with pytest.raises(errors.InputError, match='example 1 is a'):
    parts(labelled(), split=split, test_file=test)


@pytest.mark.parametrize(
  ('data', 'choice', 'message'),
  [
    ({}, {}, 'mine does not say .* do this, or'),
    ({**WHOSE, 'users': np.full(24, -1)}, {}, 'NA is nobody'),
    ({}, {'split': '.'}, r'federated_train\.csv is no file'),
    (
      {'test': np.array([0])},
      {'split': 'class', 'test_fraction': 0.1},
      'leave out --test_fraction',
    ),
    ({}, {'split': 'iid:25'}, 'split=iid:25: there are 24'),
  ],
)
def test_what_is_missing_is_named(data, choice, message, tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  with pytest.raises(errors.InputError, match=message):
    parts(labelled(**data), **choice)


def test_one_is_no_plural():
  described = own.described(1, 'image', ['cat'], 0, 1)
  assert described == '1 image of 1 class (cat), no test part; 1 client'
  described = own.described(1200, 'row', ['a', 'b', 'c', 'd'], 30, 0)
  assert described == (
    '1,200 rows of 4 classes (a, b, c, ...), 30 of them test; --split must say'
    ' whose each is'
  )


def test_classes_of_folders_that_look_like_floats(tmp_path):
  """A table calls the class of a folder 2.0 by 2."""
  data = labelled(class_names=['1.0', '2.0', '2.1'])
  for name in ('2.0', '2'):
    lines = ('user_id,image_id,class', f'u,1,{name}', 'v,2,2.1')
    path = write(tmp_path / 'a.csv', *lines)
    clients, *_ = parts(data, split=path)
    assert sorted(clients.numbers) == [1, 2]
