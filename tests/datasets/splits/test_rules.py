"""Rules by class, by user, by label sets and at random, on examples that are easy to check."""

import dataclasses
import random

import numpy as np
import pytest
import scipy.sparse

from datasets import examples as examples_lib
from datasets.splits import partitions, rules
from tff_xc import errors


def deal(rule, labels, seed=0, num_classes=None, **settings):
  examples = examples_lib.of_labels(labels, num_classes)
  return rules.deal(rule, examples, seed, **settings).train


def clients_of(found):
  return {name: found.of_client(k).tolist() for k, name in enumerate(found.client_ids)}


def by_class(labels, seed=0, **settings):
  return deal('classes_per_client', labels, seed, 12, **settings)


LABELS = np.array([7, 2, -1, 2, 0, 7, 7, 2, 7, 11])


def test_grouping_by_class():
  assert clients_of(by_class(LABELS)) == {
    'class/00': [4],
    'class/02': [1, 3, 7],
    'class/07': [0, 5, 6, 8],
    'class/11': [9],
  }
  assert clients_of(by_class(LABELS, clients_per_class=3)) == {
    'class/00/0': [4],
    'class/02/0': [1],
    'class/02/1': [3],
    'class/02/2': [7],
    'class/07/0': [0, 8],
    'class/07/1': [5],
    'class/07/2': [6],
    'class/11/0': [9],
  }
  nothing = by_class(np.array([-1, -1]))
  assert (nothing.client_ids, nothing.offsets.tolist()) == ([], [0])


def test_grouping_several_classes_and_their_shares():
  labels = np.random.default_rng(0).integers(0, 12, 300)
  found = by_class(labels, 1, classes_per_client=5, clients_per_class=4)
  clients = clients_of(found)
  assert len(clients) == 4 * 3
  assert list(clients)[:2] == ['classes/00/0', 'classes/00/1']
  assert sorted(found.numbers) == list(range(300))
  groups = {name: frozenset(labels[own]) for name, own in clients.items()}
  for share in range(4):
    mine = [g for name, g in groups.items() if name.endswith(f'/{share}')]
    assert sorted(map(len, mine)) == [2, 5, 5]
    assert sorted(label for group in mine for label in group) == list(range(12))
  assert len(set(groups.values())) > 9  # Each share has its own random groups.
  for label in range(12):
    counts = [np.count_nonzero(labels[own] == label) for own in clients.values()]
    counts = [c for c in counts if c]
    assert (len(counts), max(counts) - min(counts) <= 1) == (4, True)
  for seed in range(3):
    clients = clients_of(by_class(LABELS, seed, classes_per_client=3))
    first, second = (set(LABELS[n]) for n in clients.values())
    assert (len(first), len(second), first | second) == (3, 1, {0, 2, 7, 11})


SORTED = np.array([3, 1, 1, -1, 0, 3, 1, 0])


def test_chunks_cut_the_examples_sorted_by_class():
  assert clients_of(deal('chunks', SORTED, examples_per_client=3)) == {
    '0': [1, 4, 7],
    '1': [0, 2, 6],
    '2': [5],
  }


def test_shards_are_cut_evenly_and_dealt_at_random():
  labels = np.random.default_rng(0).permutation(np.arange(603) % 10)
  settings = {'clients': 10, 'shards_per_client': 3}
  found = deal('shards', labels, 1, **settings)
  assert sorted(found.numbers) == list(range(603))
  assert set(found.sizes) <= {60, 61, 62, 63}
  ranks = np.empty(603, int)
  ranks[np.argsort(labels, kind='stable')] = np.arange(603)
  for k in range(10):
    mine = np.sort(ranks[found.of_client(k)])
    # A client has at most three runs of successive examples.
    assert np.count_nonzero(np.diff(mine) > 1) <= 2
  other = deal('shards', labels, 2, **settings)
  assert (found.numbers != other.numbers).any()


def test_iid_deals_all_evenly():
  found = deal('iid', SORTED, 3, clients=3)
  assert found.client_ids == ['client/0', 'client/1', 'client/2']
  assert sorted(found.numbers) == [0, 1, 2, 4, 5, 6, 7]
  assert sorted(found.sizes) == [2, 2, 3]
  assert all((np.diff(found.of_client(k)) > 0).all() for k in range(3))
  assert (deal('iid', SORTED, 4, clients=3).numbers != found.numbers).any()


# FedMLH's rules. Of 50 examples, 30 have label 0, 4 have label 1, 20 have label 2, none has label
# 3, and one has label 4.
MEMBERS = {0: range(30), 1: range(10, 14), 2: range(25, 45), 4: [48]}


def frequent(seed=0, members=MEMBERS, **settings):
  matrix = np.zeros([50, 5], bool)
  for label, numbers in members.items():
    matrix[list(numbers), label] = True
  sets = scipy.sparse.csr_matrix(matrix)
  return deal('frequent_labels', sets, seed, **settings)


def test_frequent_labels_by_the_code():
  found = frequent(1, clients=3)
  assert found.client_ids == ['client/0', 'client/1', 'client/2']
  assert list(found.sizes) == [16, 16, 16]
  of_0, of_2, of_1 = (found.of_client(i) for i in range(3))
  for label, numbers in ((0, of_0), (2, of_2)):
    assert set(numbers) <= set(MEMBERS[label])
    assert len(set(numbers)) == 16
  assert set(MEMBERS[1]) <= set(of_1)
  assert len(set(of_1[4:])) == 12
  # With every seed, the last two examples are not drawn to fill a client.
  some = [frequent(seed, clients=3) for seed in range(30)]
  assert max(each.of_client(2)[4:].max() for each in some) < 48
  np.testing.assert_array_equal(found.numbers, some[1].numbers)
  assert (found.numbers != some[2].numbers).any()


def test_frequent_labels_by_the_paper():
  found = frequent(clients=4, variant='paper', frequency=0.08)
  parts = [set(found.of_client(i)) for i in range(4)]
  assert sum(map(len, parts)) == len(found.numbers)  # No example is assigned twice.
  for label in (0, 1, 2):
    assert any(set(MEMBERS[label]) <= part for part in parts)
  assert set().union(*parts) == set(range(50))
  # A label whose frequency equals the threshold counts as frequent, so one client has all its
  # examples.
  halves = {0: range(25), 1: range(25, 50)}
  found = frequent(0, halves, clients=4, variant='paper', frequency=0.5)
  owners = found.owners()[np.argsort(found.numbers)]
  assert len(set(owners[:25])) == len(set(owners[25:])) == 1


SETS = scipy.sparse.csr_matrix(np.eye(3, dtype=bool))


@pytest.mark.parametrize(
  ('rule', 'labels', 'settings', 'message'),
  [
    ('shards', SORTED, {'clients': 4}, '4 clients of 2 shards'),
    ('chunks', SORTED[3:4], {}, 'no example has a label'),
    ('iid', SORTED, {'clients': 8}, '7 training examples'),
    ('classes_per_client', SORTED, {'classes_per_client': 5}, 'take 1 to 4'),
    ('classes_per_client', SORTED, {'clients_per_class': 0}, 'at least 1'),
    ('frequent_labels', SETS[:2, [0, 2]], {'clients': 2}, '1 label with'),
    ('frequent_labels', SETS, {'clients': 4}, 'too few for 4 clients'),
    ('frequent_labels', SETS, {'variant': 'text'}, 'code, paper'),
    ('dirichlets', SETS, {}, 'did you mean dirichlet'),
  ],
)
def test_what_cannot_be_dealt_is_refused(rule, labels, settings, message):
  with pytest.raises(errors.InputError, match=message):
    deal(rule, labels, **settings)


def of_users(users, names, rule='users', **settings):
  labels = np.zeros(len(users), np.int32)
  examples = dataclasses.replace(
    examples_lib.of_labels(labels), users=np.array(users), user_names=names
  )
  return rules.deal(rule, examples, **settings)


def test_users_in_the_order_of_their_names():
  users, names = [2, 0, 2, -1, 1, 0, 2], ['10', '9', '2']
  found = of_users(users, names).train
  assert clients_of(found) == {'2': [0, 2, 6], '9': [4], '10': [1, 5]}
  found = of_users(users, names, min_examples=3).train
  assert clients_of(found) == {'2': [0, 2, 6]}
  for given, rule, least, message in (
    ((users, names), 'users', 4, 'no user of 3 remains'),
    (([-1, -1], []), 'users', 1, 'NA'),
    (([-1, -1], []), 'leaf_users', 1, 'NA'),
    (([0, 0], ['ann']), 'leaf_users', 1, r'1 of 1 users .* 0\.9 of them'),
  ):
    with pytest.raises(errors.InputError, match=message):
      of_users(*given, rule, min_examples=least)


def test_leafs_draw_of_users():
  train, test = partitions.leaf_parts(np.full(3_550, 7))
  assert (len(train), len(test)) == (3_195, 355)
  drawn = random.Random(0).sample(range(3_550), int(0.9 * 3_550))
  assert sorted(drawn) == train.tolist()
  sizes = np.array([5, 0, 5, 5])
  train, test = partitions.leaf_parts(sizes, min_examples=1, train_share=0.5)
  assert sorted([*train, *test]) == [0, 2, 3]
  assert len(train) == 1
  found = of_users([0, 1, 1, 2], ['a', 'b', 'c'], 'leaf_users', train_share=0.7)
  [*held] = {'a', 'b', 'c'} - set(found.train.client_ids)
  assert found.test.tolist() == {'a': [0], 'b': [1, 2], 'c': [3]}[held[0]]


@pytest.mark.parametrize(
  ('split', 'expected'),
  [
    ('', ('users', {})),
    ('class', ('classes_per_client', {})),
    ('iid:7', ('iid', {'clients': 7})),
    ('dirichlet:concentration=0.5,clients=9', ('dirichlet', {'concentration': 0.5, 'clients': 9})),
    ('a.csv', None),
    ('a.csv:user', None),
    ('dirichlet', None),  # A folder may have this name.
    ('a:user=1', 'is no file, and no rule'),
    ('users:min_examples=2', 'dirichlet, iid, classes_per_client, chunks, shards$'),
    ('sop:examples_per_client=1', 'is no file, and no rule'),
    ('iid:clients=3,clients=4', 'twice'),
    ('shards:clients', None),
    ('iid:x', "'x': expected a whole number"),
    ('iid:0', 'at least 1'),
    ('dirichlet:alpha=1', 'alpha is no setting of dirichlet, which takes concentration, [^-]*$'),
    ('shards:clients=', "'': expected a whole number"),
  ],
)
def test_a_split_names_a_rule_or_a_file(split, expected):
  if isinstance(expected, str):
    with pytest.raises(errors.InputError, match=expected):
      rules.parse(split)
  else:
    assert rules.parse(split) == expected


def test_a_file_may_be_called_as_a_rule(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  for name in ('users:min_examples=2', 'sop'):
    (tmp_path / name).touch()
    assert rules.parse(name) is None
  assert rules.parse('sop:column=1') is None
