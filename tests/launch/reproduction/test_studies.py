"""Measurements that are not formulas or usual runs, compared with simple loops."""

import types

import numpy as np
import pytest
import scipy.sparse

from launch import runs as runs_lib
from launch.reproduction import lines as lines_lib, plan, studies
from tasks import registry as tasks, task as task_lib
from tasks.papers import data, registry
from tests import tiny
from tff_xc import errors
from tff_xc.data import client_data, hashing, partition, pool, sparse
from tff_xc.measure import hashed_labels

pytestmark = pytest.mark.usefixtures('blank_pictures')


def planned(name, output, scale='small', **more):
  return plan.plan_one(registry.RESULTS[name], plan.Request(scale=scale, output=output, **more))


def values(lines):
  return {x.row: x.measured.value for x in lines if x.metric == lines_lib.VALUE}


# -- Statistics of data sets. --


def federated(y, *, n, x=None, **more):
  """Returns clients with examples 0 and 1, examples 2 to 4, and none. Example 5 has no client."""
  x = np.zeros([len(y), 2]) if x is None else x
  clients = partition.Partition(['a', 'b', 'c'], [0, 2, 5, 5], np.arange(5))
  train = client_data.PartitionedClientData(pool.in_memory(x, y), clients)
  test = pool.in_memory(x[:3], y[:3])
  return client_data.FederatedDataset('t', n, train, test, **more)


def statistics(dataset):
  return studies.statistics(dataset, studies._held(dataset))


def test_statistics_of_classes_and_label_sets():
  assert statistics(federated(np.array([0, 1, 1, 1, 2, 3]), n=5)) == {
    data.CLIENTS: 2,
    data.CLASSES: 5,
    data.EXAMPLES: 5,
    data.MEAN: 2.5,
    data.STD: 0.5,
    data.HELD: 2,
    data.MOST_HELD: 2,
    data.TEST: 3,
    data.ALL: 8,
    data.TEN_TESTS: 0,
    # p is .2 .6 .2. Client a has the distance .3 + .1 + .2, and client b .2 + 1/15 + 2/15.
    data.EMD: pytest.approx((2 * 0.6 + 3 * 0.4) / 5),
  }
  sets = np.zeros([6, 4], bool)
  for example, labels in enumerate([[0], [0, 1], [1], [2], [0, 1, 2], []]):
    sets[example, labels] = True
  found = statistics(
    federated(
      scipy.sparse.csr_matrix(sets),
      n=4,
      x=scipy.sparse.csr_matrix(np.eye(6, 9)),
      propensity=sparse.Propensity(sets.sum(axis=0), 6),
    )
  )
  assert found[data.EXAMPLES] == 6  # The number includes examples without a client.
  assert found[data.LABELS] == pytest.approx(8 / 6)
  assert (found[data.POSITIVES], found[data.FEATURES]) == (2, 9)
  assert found[data.HELD] == 2.5
  assert data.EMD not in found and data.TEN_TESTS not in found


def test_sets_that_are_there_are_measured_and_others_are_named(tmp_path, monkeypatch, capsys):
  # Check the files in this process instead of one process per task.
  monkeypatch.setattr(runs_lib, 'check_files', lambda task, where: tasks.get(task).find(where))
  each = planned('turbosvm-fl/fig3', tmp_path, 'paper', given={'data_dir': 'd'})
  with pytest.raises(errors.InputError, match='these data are missing'):
    studies.measure(each, tmp_path)
  loaded = task_lib.Loaded(federated(np.array([0, 1, 1, 1, 2, 3]), n=5), None)
  there = types.SimpleNamespace(find=lambda where: None, load=lambda *_: loaded)
  get = tasks.get
  monkeypatch.setattr(tasks, 'get', lambda name: there if name == 'femnist' else get(name))
  lines = studies.measure(each, tmp_path)
  assert 'missing: celeba' in capsys.readouterr().out
  assert [line.task for line in lines if not line.measured] == ['celeba', 'shakespeare']
  assert values(x for x in lines if x.measured)[data.CLIENTS] == 2


# -- FedAwS. --


def test_the_losses_are_those_of_plain_loops():
  random = np.random.default_rng(0)
  rows, g = random.normal(size=(4, 3)), random.normal(size=(8, 3))
  y, nu = np.repeat(np.arange(4), 2), 1.4
  for each in (rows, g):
    each /= np.linalg.norm(each, axis=1, keepdims=True)
  found = studies.losses(rows, g, y, nu)

  def hinge(s):
    return max(0.0, nu - 1 + s) ** 2

  pull = [(1 - g[i] @ rows[y[i]]) ** 2 for i in range(8)]
  for i in range(8):
    others = [c for c in range(4) if c != y[i]]
    for name, wanted in {
      'l_ccl': pull[i] + sum(hinge(g[i] @ rows[c]) for c in others),
      'l_sp': pull[i] + sum(hinge(rows[y[i]] @ rows[c]) for c in others),
      'mismatch': sum(abs(rows[c] @ (rows[y[i]] - g[i])) for c in others),
      'is wrong': any(g[i] @ rows[c] >= g[i] @ rows[y[i]] for c in others),
    }.items():
      assert found[name][i] == pytest.approx(wanted)
  pairs = [hinge(rows[c] @ rows[d]) for c in range(4) for d in range(4) if c != d]
  assert found['objective'] == pytest.approx(np.mean(pull) + sum(pairs) / 4)


# -- FedMLH. --


def sets_of(y, x, clients):
  examples = pool.in_memory(np.float32(x), scipy.sparse.csr_matrix(y))
  return client_data.FederatedDataset(
    name='small',
    num_classes=y.shape[1],
    train=client_data.PartitionedClientData(examples, partition.of_owners(clients)),
    propensity=sparse.Propensity(y.sum(axis=0), len(y)),
  )


def test_a_sets_theory_is_that_of_plain_loops():
  """80 examples have 30 labels and 3 clients. The last ten examples have no client."""
  random, owners = np.random.default_rng(2), np.arange(70) % 3
  y = random.random([80, 30]) < 0.1
  y[:, 3] = False
  y[0, 5] = True
  x = random.normal(size=[80, 6]) + 3 * y[:, 10:16]
  found = studies.hashed(sets_of(y, x, owners), 2, 4)
  counts = y.sum(axis=0)
  rows = np.stack([y[:70][owners == k].sum(axis=0) for k in range(3)])
  both = [hashing.buckets(np.arange(30), seed, 4) for seed in range(2)]

  def divergence(bucket, size):
    summed = [[c[bucket == b].sum() for b in range(size)] for c in rows]
    return hashed_labels.divergences(np.array(summed))[~np.eye(3, dtype=bool)].mean()

  rare = counts < 0.01 * 80
  observed = [
    y[:, bucket == bucket[label]].any(axis=1).sum()
    for bucket in both
    for label in np.flatnonzero(rare)
  ]
  most = sorted(range(30), key=lambda label: -counts[label])[:3]
  shares = [max(rows[:, c]) / (sum(rows[:, c]) / 3) for c in most]
  for name, wanted in {
    'over the buckets of a table, mean': np.mean([divergence(b, 4) for b in both]),
    'over the buckets of all tables together, mean': divergence(4 * both[0] + both[1], 16),
    'of its buckets, mean, an example counts once': np.mean(observed),
    'examples of a frequent label on one client, over an even share (Fig. 2 c)': np.mean(shares),
    'share of all labels': rare.mean(),
    'pairs of clients and tables': 2 * 3 * 2,
    'pairs whose divergence grew': 0,
    'pairs whose divergence fell with more buckets': 0,
    'pairs whose divergence fell with more tables': 0,
  }.items():
    assert found[name] == pytest.approx(wanted), name
  exponent = "exponent of a centroid's error over its positives (Theorem 1)"
  assert found[exponent] == pytest.approx(-1, abs=0.05)


def test_the_centroids_of_buckets_are_nearer_as_they_have_more_positives(monkeypatch):
  """Rare labels 2 to 4 have similar examples, and label 5 has other ones; two buckets."""
  random = np.random.default_rng(7)
  label = np.repeat([0, 2, 3, 4, 5], [600, 6, 6, 6, 6])
  y = np.eye(6, dtype=bool)[label]
  x = random.normal(size=[624, 5])

  def ratio(x, buckets):
    monkeypatch.setattr(hashing, 'buckets', lambda *_: np.array(buckets))
    examples = sets_of(y, x, label % 2).train.pool
    return studies._centroids(examples, y.sum(axis=0) > 10, 2)[1]

  assert ratio(x, [0, 0, 1, 2, 3, 4]) == pytest.approx(1, rel=0.35)
  # Four times as many positives give a quarter of the error.
  assert 0.6 < ratio(x, [0, 0, 1, 1, 1, 1]) < 1.4
  assert ratio(x + 4 * (label == 5)[:, None], [0, 0, 1, 1, 1, 1]) < 0.4


def test_a_hash_that_is_not_uniform_is_told(monkeypatch):
  """If infrequent labels never share buckets with frequent labels, Lemma 1's bound is violated."""
  y = np.zeros([400, 30], bool)
  y[:, :5], y[0] = True, True
  dataset = sets_of(y, y[:, :1] + np.arange(400)[:, None], np.arange(400) % 2)
  above = 'standard errors above the bound of Lemma 1'
  assert studies.hashed(dataset, 1, 4)[above] > -3

  def apart(ids, seed, size):
    return np.where(ids < 5, 0, 1 + ids % (size - 1))

  monkeypatch.setattr(hashing, 'buckets', apart)
  assert studies.hashed(dataset, 1, 4)[above] < -3


# -- FedSS. --


def test_the_diagonal_of_fedss_is_compared_with_that_of_negonly(tmp_path, monkeypatch):
  each = planned('fedss/fig7', tmp_path)
  with pytest.raises(errors.InputError, match='has not finished'):
    studies.measure(each, tmp_path)
  predicted = {run.folder: run.config['algorithm'] for [run] in each.runs}
  guesses = {'fedss': [0, 0, 1, 1], 'negonly': [0, 5, 5, 5]}

  def load(folder, named):
    found = np.array(guesses[predicted[folder]]), np.array([0, 0, 1, 1])
    return types.SimpleNamespace(
      dataset=types.SimpleNamespace(train=None), predictions=lambda client: ('train', *found)
    )

  monkeypatch.setattr(runs_lib, 'is_finished', lambda run: True)
  monkeypatch.setattr(studies.trained, 'restore', load)
  monkeypatch.setattr(studies.trained, 'choose_client', lambda *_: 'c')
  lines = studies.measure(each, tmp_path)
  assert [*values(lines).values()] == [100 - 25]
  assert [x.measured.value for x in lines if x.metric == 'classes predicted'] == [2, 1]
  assert {path.name for path in tmp_path.iterdir()} == {'fedss.png', 'negonly.png'}


CONFIG = {
  'seed': 7,
  'hyperparameters': {
    'clients_per_round': 3,
    'client_learning_rate': 0.1,
    'batch_size': 5,  # The batch size of the study takes precedence.
  },
}


def noisy_dataset(num_classes=90, sizes=(40, 7, 33)):
  """Returns clients with at most four classes each. The second client has no whole batch."""
  random, owners = np.random.default_rng(0), np.repeat(np.arange(len(sizes)), sizes)
  x = random.normal(size=[len(owners), tiny.FEATURES]).astype(np.float32)
  y = (4 * owners + random.integers(4, size=len(owners))) % num_classes
  clients = partition.of_owners(owners)
  examples = client_data.PartitionedClientData(pool.in_memory(x, y), clients)
  return client_data.FederatedDataset('tiny', num_classes, examples)


@pytest.mark.slow
@pytest.mark.usefixtures('in_process')
def test_the_noise_falls_to_nothing_with_all_other_classes():
  dataset, model = noisy_dataset(), tiny.model(90)
  found = studies.noises(dataset, model, CONFIG)
  assert [*found] == [5, 10, 20, 40, 80, 89]
  assert found[5] > found[20] > found[80] > 1e-5 > 1e-7 > found[89]


def test_few_classes_outside_of_a_batch_are_refused():
  for dataset in (noisy_dataset(84), noisy_dataset(sizes=(5, 7, 9))):
    with pytest.raises(errors.InputError, match='num_classes'):
      studies.noises(dataset, None, CONFIG)
