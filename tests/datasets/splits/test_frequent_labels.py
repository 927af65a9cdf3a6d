"""FedMLH's two rules."""

import numpy as np
import pytest
import scipy.sparse

from datasets import examples
from datasets.splits import rules
from tff_xc import errors

# Label 0 has 30 of 50 examples, label 1 has 4, label 2 has 20, label 3 none,
# label 4 one.
MEMBERS = {0: range(30), 1: range(10, 14), 2: range(25, 45), 4: [48]}


def label_sets():
  matrix = np.zeros([50, 5], bool)
  for label, members in MEMBERS.items():
    matrix[list(members), label] = True
  return scipy.sparse.csr_matrix(matrix)


def deal(seed=0, matrix=None, **settings):
  sets = label_sets() if matrix is None else scipy.sparse.csr_matrix(matrix)
  data = examples.of_labels(sets)
  return rules.deal('frequent_labels', data, seed, **settings).train


def test_the_codes_rule():
  found = deal(1, clients=3)
  assert found.client_ids == ['client/0', 'client/1', 'client/2']
  assert list(found.sizes) == [16, 16, 16]
  of_0, of_2, of_1 = (found.of_client(i) for i in range(3))
  for label, numbers in ((0, of_0), (2, of_2)):
    assert set(numbers) <= set(MEMBERS[label])
    assert len(set(numbers)) == 16
  assert set(MEMBERS[1]) <= set(of_1)
  assert len(set(of_1[4:])) == 12
  # Whatever the seed, the last two examples fill no client.
  some = [deal(seed, clients=3) for seed in range(30)]
  assert max(each.of_client(2)[4:].max() for each in some) < 48
  np.testing.assert_array_equal(found.numbers, some[1].numbers)
  assert (found.numbers != some[2].numbers).any()


def test_the_papers_rule():
  found = deal(clients=4, variant='paper', frequency=0.08)
  parts = [set(found.of_client(i)) for i in range(4)]
  assert sum(map(len, parts)) == len(found.numbers)  # Nothing twice.
  for label in (0, 1, 2):
    assert any(set(MEMBERS[label]) <= part for part in parts)
  assert set().union(*parts) == set(range(50))
  rest = set(range(45, 50))
  assert sum(len(part & rest) for part in parts) == 5


@pytest.mark.parametrize(
  ('arguments', 'problem'),
  [
    ({'clients': 5}, '4 labels have examples: too few for 5'),
    ({'clients': 51}, '50 examples are too few for 51'),
    ({'variant': 'text'}, 'code, paper'),
  ],
)
def test_bad_arguments(arguments, problem):
  with pytest.raises(errors.InputError, match=problem):
    deal(**arguments)


def test_a_label_as_frequent_as_the_threshold_is_frequent():
  matrix = np.zeros([50, 2], bool)
  matrix[:25, 0] = True
  matrix[25:, 1] = True
  found = deal(matrix=matrix, clients=4, variant='paper', frequency=0.5)
  # So each is whole with one client.
  owners = found.owners()[np.argsort(found.numbers)]
  assert len(set(owners[:25])) == len(set(owners[25:])) == 1
