"""Clients of the user's own data by --split, and held-out test examples."""

import numpy as np
import pytest
import scipy.sparse

from datasets import examples
from datasets.splits import deal, hold_out
from tff_xc import errors

LABELS = np.array([0, 1, 2] * 8, np.int32)
HEADER = 'user_id,image_id,class'


def labelled(**changes):
  settings = {'class_names': ['a', 'b', 'c'], 'ids': range(24), **changes}
  return examples.Examples(LABELS, **settings)


def parts(data, **choice):
  return deal.parts(data, deal.Choice(**choice), 'mine', 'do this, or ')


def write(path, *lines):
  path.write_text('\n'.join([*lines, '']))
  return str(path)


WHOSE = {
  'users': np.arange(24, dtype=np.int32) % 4 - 1,  # Examples with -1 belong to no client.
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
    clients, test, *_ = parts(data, **choice)
    everything = [*clients.numbers, *([] if test is None else test)]
    assert len(set(everything)) == len(everything) == everyone
    if 'test_fraction' in choice:
      assert set(LABELS[test]) == {0, 1, 2}
      assert 4 <= len(test) <= 7
  clients, *_ = parts(data)
  assert clients.client_ids == ['u10', 'u9', 'x']
  assert clients.of_client(1).tolist() == [2, 6, 10, 14, 18, 22]


def test_a_client_has_its_own_of_the_test():
  # These are all examples of user x, and one example without a user.
  tested = np.array([0, 2, 3, 6, 7, 11, 15, 19, 23])
  data = labelled(**WHOSE, test=tested)
  clients, _, held_out, _ = parts(data)
  assert held_out.client_ids == clients.client_ids == ['u10', 'u9']
  assert [held_out.of_client(k).tolist() for k in (0, 1)] == [[], [2, 6]]
  assert parts(labelled(**WHOSE)).held_out is None
  assert parts(data, split='class').held_out is None
  _, test, held_out, _ = parts(data, test_examples=4)
  assert set(held_out.numbers) == {2, 6} & set(test)


def test_a_file_says_who_has_what(tmp_path):
  split = write(tmp_path / 's.csv', HEADER, '9,0,a', '10,4,b', 'NA,1,b')
  test = write(tmp_path / 't.csv', 'image_id,class', '5,c')
  clients, found, *_ = parts(labelled(), split=split, test_file=test)
  assert clients.client_ids == ['9', '10']
  assert clients.numbers.tolist() == [0, 4]
  assert found.tolist() == [5]
  clients, found, *_ = parts(labelled(), split='class', test_file=test)
  assert (len(clients.numbers), found.tolist()) == (23, [5])
  write(tmp_path / 't.csv', 'image_id,class', '4,b')
  with pytest.raises(errors.InputError, match='example 4 is a'):
    parts(labelled(), split=split, test_file=test)
  for given in (split, 'class'):
    with pytest.raises(errors.InputError, match='leave out --test_file'):
      parts(labelled(test=np.array([5])), split=given, test_file=test)


@pytest.mark.parametrize(
  ('names', 'lines', 'expected'),
  [
    # Class numbers are accepted instead of names.
    (['a', 'b', 'c'], ['u,0,0', 'u,5,2'], [0, 5]),
    # In a table, 2 and 2.0 name the same class.
    (['1.0', '2.0', '2.1'], ['u,1,2.0', 'u,2,2.1'], [1, 2]),
    (['1.0', '2.0', '2.1'], ['u,1,2', 'u,2,2.1'], [1, 2]),
    # The same name in another Unicode normal form.
    (['a', 'e\u0301', 'c'], ['9,1,\u00e9', '9,3,a'], [1, 3]),
    (['a', 'b', 'c'], ['u,1,b', 'u,0,b'], "line 3: .*'b' here and 'a' in mine"),
    (['a', 'b', 'c'], ['u,24,a'], "line 2 .* '24', and mine has no such"),
    (['a', 'b', 'c'], ['u,0,'], 'no class'),
  ],
)
def test_classes_of_a_file_are_those_of_the_data(names, lines, expected, tmp_path):
  split = write(tmp_path / 's.csv', HEADER, *lines)
  data = labelled(class_names=names)
  if isinstance(expected, str):
    with pytest.raises(errors.InputError, match=expected):
      parts(data, split=split)
  else:
    assert parts(data, split=split).clients.numbers.tolist() == expected


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
    ({}, {'split': 'shards:clients=25'}, 'give fewer clients, or'),
  ],
)
def test_what_is_missing_is_named(data, choice, message, tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  with pytest.raises(errors.InputError, match=message):
    parts(labelled(**data), **choice)


SIZES = [40, 1, 2, 3, 0, 17]
MIXED = np.random.default_rng(0).permutation(np.append(np.repeat(np.arange(6), SIZES), [-1] * 10))


@pytest.mark.parametrize('fraction', [0.1, 0.2, 0.5])
def test_the_same_share_of_every_class_is_held_out(fraction):
  drawn = [hold_out.by_fraction(MIXED, fraction, s) for s in range(300)]
  counts = np.array([np.bincount(MIXED[d], minlength=6) for d in drawn])
  assert (np.diff(drawn[0]) > 0).all()
  for label, size in enumerate(SIZES):
    exact = fraction * size if size > 1 else 0
    found = counts[:, label]
    assert np.floor(exact) <= found.min() <= found.max() <= np.ceil(exact)
    assert found.mean() == pytest.approx(exact, abs=0.1)
    assert found.max() < max(size, 1)
  assert len(set(map(tuple, drawn))) > 290
  again = hold_out.by_fraction(MIXED, fraction, 3)
  np.testing.assert_array_equal(again, drawn[3])


def test_a_test_example_goes_to_a_random_owner_of_its_class():
  labels = np.array([2, 0, 2, -1, 2, 0, 2])
  owners = np.array([5, 1, 6, 8, 7, 1, 7])
  test = np.repeat([2, 0, 9, -1, 1], 400)  # No client has examples of 9 and 1.
  found = hold_out.owners_of(test, labels, owners, 0).reshape(5, 400)
  shares = np.bincount(found[0], minlength=8) / 400
  np.testing.assert_allclose(shares[5:], [0.25, 0.25, 0.5], atol=0.08)
  assert shares[:5].sum() == 0
  assert [set(part) for part in found[1:].tolist()] == [{1}, {-1}, {-1}, {-1}]
  again, other = (hold_out.owners_of(test, labels, owners, seed).reshape(5, 400) for seed in (0, 1))
  np.testing.assert_array_equal(again, found)
  assert (other[0] != found[0]).any()


def test_so_many_of_every_class_and_of_sets():
  drawn = hold_out.by_class(MIXED, 5, 0)
  counts = np.bincount(MIXED[drawn], minlength=6)
  assert counts.tolist() == [5, 0, 1, 1, 0, 5]
  assert (np.diff(drawn) > 0).all()
  sets = scipy.sparse.csr_matrix(np.ones([40, 3], bool))
  assert len(np.unique(hold_out.by_fraction(sets, 0.25, 0))) == 10
  for draw, labels, size, flag in (
    (hold_out.by_class, sets, 1, 'take --test_fraction'),
    (hold_out.by_fraction, np.arange(5), 0.5, '--test_fraction='),
    (hold_out.by_class, np.arange(5), 2, '--test_per_class='),
  ):
    with pytest.raises(errors.InputError, match=flag):
      draw(labels, size, 0)
