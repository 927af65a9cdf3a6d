"""Measurements that are neither formulas nor plain runs, beside plain loops."""

import types

import numpy as np
import pytest
import scipy.sparse
import tensorflow as tf

from launch import runs as runs_lib
from launch.reproduction import lines as lines_lib, plan, studies
from tasks import registry as tasks, task as task_lib
from tasks.papers import data, registry
from tests import tiny
from tff_xc import errors
from tff_xc.data import client_data, hashing, partition, pool, sparse
from tff_xc.measure import hashed_labels, skew
from tff_xc.round import randomness, request

pytestmark = pytest.mark.usefixtures('blank_pictures')


def planned(name, output, scale='small', **more):
  asked = plan.Request(scale=scale, output=output, **more)
  return plan.plan_one(registry.RESULTS[name], asked)


def values(lines):
  return {x.row: x.measured.value for x in lines if x.metric == lines_lib.VALUE}


# -- statistics of data sets --


def federated(y, *, n, x=None, **more):
  """Returns clients with examples 0 and 1, 2 to 4, and none; 5 is of nobody."""
  x = np.zeros([len(y), 2]) if x is None else x
  clients = partition.Partition(['a', 'b', 'c'], [0, 2, 5, 5], np.arange(5))
  train = client_data.PartitionedClientData(pool.in_memory(x, y), clients)
  test = pool.in_memory(x[:3], y[:3])
  return client_data.FederatedDataset('t', n, train, test, **more)


def statistics(dataset):
  shape = len(dataset.train.partition), dataset.num_classes
  counts = skew.class_counts(*dataset.train.owned_labels(), shape)
  return studies.statistics(dataset, counts)


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
    # p = .2 .6 .2; of a .3 + .1 + .2, of b .2 + 1/15 + 2/15.
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
  assert found[data.EXAMPLES] == 6  # Also those that no client has.
  assert found[data.LABELS] == pytest.approx(8 / 6)
  assert (found[data.POSITIVES], found[data.FEATURES]) == (2, 9)
  assert found[data.HELD] == 2.5
  assert data.EMD not in found and data.TEN_TESTS not in found


def test_sets_that_are_there_are_measured_and_others_are_named(tmp_path, monkeypatch, capsys):
  # Without a process for each task.
  def look(task, data_dir):
    return tasks.get(task).find(data_dir)

  monkeypatch.setattr(runs_lib, 'check_files', look)
  each = planned('turbosvm-fl/fig3', tmp_path, 'paper', given={'data_dir': 'd'})
  with pytest.raises(errors.InputError, match='these 3 tasks are'):
    studies.measure(each, tmp_path)
  loaded = task_lib.Loaded(federated(np.array([0, 1, 1, 1, 2, 3]), n=5), None)

  class There:
    find = staticmethod(lambda where: None)
    load = staticmethod(lambda *_: loaded)

  get = tasks.get

  def there(name):
    return There if name == 'femnist' else get(name)

  monkeypatch.setattr(tasks, 'get', there)
  lines = studies.measure(each, tmp_path)
  assert 'missing: celeba' in capsys.readouterr().out
  missing = [line.task for line in lines if not line.measured]
  assert missing == ['celeba', 'shakespeare']
  assert values(x for x in lines if x.measured)[data.CLIENTS] == 2


# -- FedAwS --


def test_the_losses_are_those_of_plain_loops():
  random = np.random.default_rng(0)

  def unit(x):
    return x / np.linalg.norm(x, axis=1, keepdims=True)

  rows, y = unit(random.normal(size=(4, 3))), np.repeat(np.arange(4), 2)
  g, nu = unit(random.normal(size=(8, 3))), 1.4
  found = studies.losses(rows, g, y, nu)

  def hinge(s):
    return max(0.0, nu - 1 + s) ** 2

  pull = [(1 - g[i] @ rows[y[i]]) ** 2 for i in range(8)]
  for i in range(8):
    others = [c for c in range(4) if c != y[i]]
    contrastive = pull[i] + sum(hinge(g[i] @ rows[c]) for c in others)
    spread = pull[i] + sum(hinge(rows[y[i]] @ rows[c]) for c in others)
    mismatch = sum(abs(rows[c] @ (rows[y[i]] - g[i])) for c in others)
    own = g[i] @ rows[y[i]]
    assert found['l_ccl'][i] == pytest.approx(contrastive)
    assert found['l_sp'][i] == pytest.approx(spread)
    assert found['mismatch'][i] == pytest.approx(mismatch)
    assert found['is wrong'][i] == any(g[i] @ rows[c] >= own for c in others)
  pairs = [hinge(rows[c] @ rows[d]) for c in range(4) for d in range(4) if c != d]
  assert found['objective'] == pytest.approx(np.mean(pull) + sum(pairs) / 4)


# -- FedMLH --


def sets_of(y, x, clients):
  examples = pool.in_memory(np.float32(x), scipy.sparse.csr_matrix(y))
  return client_data.FederatedDataset(
    name='small',
    num_classes=y.shape[1],
    train=client_data.PartitionedClientData(examples, partition.of_owners(clients)),
    propensity=sparse.Propensity(y.sum(axis=0), len(y)),
  )


def test_a_sets_theory_is_that_of_plain_loops():
  """80 examples of 30 labels with 3 clients; the last ten are with nobody."""
  random, owners = np.random.default_rng(2), np.arange(70) % 3
  y = random.random([80, 30]) < 0.1
  y[:, 3] = False
  y[0, 5] = True
  x = random.normal(size=[80, 6]) + 3 * y[:, 10:16]
  found = studies.hashed(sets_of(y, x, owners), 2, 4)
  counts = y.sum(axis=0)
  rows = np.stack([y[:70][owners == k].sum(axis=0) for k in range(3)])
  others = ~np.eye(3, dtype=bool)
  both = [hashing.buckets(np.arange(30), seed, 4) for seed in range(2)]

  def divergences(bucket, size):
    summed = [[c[bucket == b].sum() for b in range(size)] for c in rows]
    return hashed_labels.divergences(np.array(summed))[others]

  means = [np.mean([divergences(b, 4) for b in both])]
  means.append(np.mean(divergences(4 * both[0] + both[1], 16)))
  assert found['over the buckets of a table, mean'] == pytest.approx(means[0])
  together = found['over the buckets of all tables together, mean']
  assert together == pytest.approx(means[1])
  rare = counts < 0.01 * 80
  observed = [
    y[:, bucket == bucket[label]].any(axis=1).sum()
    for bucket in both
    for label in np.flatnonzero(rare)
  ]
  once = found['of its buckets, mean, an example counts once']
  assert once == pytest.approx(np.mean(observed))
  most = sorted(range(30), key=lambda label: -counts[label])[:3]
  wanted = [max(rows[:, c]) / (sum(rows[:, c]) / 3) for c in most]
  assert studies.concentration(rows, counts) == pytest.approx(np.mean(wanted))
  exponent = "exponent of a centroid's error over its positives (Theorem 1)"
  assert found[exponent] == pytest.approx(-1, abs=0.05)
  assert found['share of all labels'] == rare.mean()
  assert found['pairs of clients and tables'] == 2 * 3 * 2
  grew = [value for row, value in found.items() if row.startswith('pairs whose')]
  assert not any(grew)


def test_the_centroids_of_buckets_are_nearer_as_they_have_more_positives(monkeypatch):
  """Rare labels 2 to 4 of examples that are alike, label 5 of others; two buckets."""
  random = np.random.default_rng(7)
  label = np.repeat([0, 2, 3, 4, 5], [600, 6, 6, 6, 6])
  y = np.eye(6, dtype=bool)[label]
  x = random.normal(size=[624, 5])

  def ratio(x, buckets):
    monkeypatch.setattr(hashing, 'buckets', lambda *_: np.array(buckets))
    examples = sets_of(y, x, label % 2).train.pool
    return studies._centroids(examples, y.sum(axis=0) > 10, 2)[1]

  assert ratio(x, [0, 0, 1, 2, 3, 4]) == pytest.approx(1, rel=0.35)
  # Four times the positives, a quarter of the error.
  assert 0.6 < ratio(x, [0, 0, 1, 1, 1, 1]) < 1.4
  apart = x + 4 * (label == 5)[:, None]
  assert ratio(apart, [0, 0, 1, 1, 1, 1]) < 0.4


def test_a_hash_that_is_not_uniform_is_told(monkeypatch):
  """Infrequent labels that no frequent one joins break Lemma 1's bound."""
  y = np.zeros([400, 30], bool)
  y[:, :5], y[0] = True, True
  dataset = sets_of(y, y[:, :1] + np.arange(400)[:, None], np.arange(400) % 2)
  above = 'standard errors above the bound of Lemma 1'
  assert studies.hashed(dataset, 1, 4)[above] > -3

  def apart(ids, seed, size):
    return np.where(ids < 5, 0, 1 + ids % (size - 1))

  monkeypatch.setattr(hashing, 'buckets', apart)
  assert studies.hashed(dataset, 1, 4)[above] < -3


@pytest.mark.slow
def test_the_theory_has_values_and_a_picture(tmp_path):
  given = {'num_classes': 60, 'num_features': 40, 'hash_buckets': 7}
  each = planned('fedmlh/theory', tmp_path, task='sparse-words-sets', given=given)
  of = values(studies.measure(each, tmp_path))
  assert (of['labels'], of['tables'], of['buckets of a table']) == (60, 4, 7)
  expected = of['expected, an example counts once a label']
  assert of['bound of Lemma 1'] < expected
  assert of['mean of 1,000 hash functions'] == pytest.approx(expected, rel=0.05)
  assert (tmp_path / 'sparse-words-sets.png').exists()


# -- FedSS --


def test_the_diagonal_of_fedss_is_compared_with_that_of_negonly(tmp_path, monkeypatch):
  each = planned('fedss/fig7', tmp_path)
  with pytest.raises(errors.InputError, match='has not finished'):
    studies.measure(each, tmp_path)
  predicted = {'fedss': [0, 0, 1, 1], 'negonly': [0, 5, 5, 5]}

  def load(folder, named):
    found = [run for [run] in each.runs if run.folder == folder]
    guesses = np.array(predicted[found[0].config['algorithm']])
    labels = np.array([0, 0, 1, 1])
    return types.SimpleNamespace(
      dataset=types.SimpleNamespace(train=None),
      predictions=lambda client: ('train', guesses, labels),
    )

  monkeypatch.setattr(runs_lib, 'is_finished', lambda run: True)
  monkeypatch.setattr(studies.trained, 'restore', load)
  monkeypatch.setattr(studies.trained, 'choose_client', lambda *_: 'c')
  lines = studies.measure(each, tmp_path)
  assert [*values(lines).values()] == [100 - 25]
  shown = [x.measured.value for x in lines if x.metric == 'classes predicted']
  assert shown == [2, 1]
  assert {path.name for path in tmp_path.iterdir()} == {'fedss.png', 'negonly.png'}


N, CLIENTS, RATE, SEED, SCALE = 90, 3, 0.1, 7, 4.0
CONFIG = {
  'seed': SEED,
  'hyperparameters': {
    'clients_per_round': CLIENTS,
    'client_learning_rate': RATE,
    'batch_size': 5,  # It is the study's that counts.
  },
}


def noisy_dataset(num_classes=N, sizes=(40, 7, 33)):
  """Returns clients of at most four classes; the middle one has no batch."""
  random = np.random.default_rng(0)
  total = sum(sizes)
  x = random.normal(size=[total, tiny.FEATURES]).astype(np.float32)
  owners = np.repeat(np.arange(len(sizes)), sizes)
  y = (4 * owners + random.integers(4, size=total)) % num_classes
  clients = partition.of_owners(owners)
  examples = client_data.PartitionedClientData(pool.in_memory(x, y), clients)
  return client_data.FederatedDataset('tiny', num_classes, examples)


def gradients(x, y, weights, ids, shift):
  """Returns the gradient of the mean loss: kernel, bias, class rows [n, d].

  The weights are these three, `ids` the rows held, `shift` is added to their logits.
  """
  kernel, bias, table = weights
  rows = table[ids]
  g = x @ kernel + bias
  lengths = [np.linalg.norm(v, axis=1, keepdims=True) for v in (g, rows)]
  u, w = g / lengths[0], rows / lengths[1]
  z = SCALE * u @ w.T + shift
  p = np.exp(z - z.max(axis=1, keepdims=True))
  p /= p.sum(axis=1, keepdims=True)
  d = (p - (y[:, None] == ids)) / len(y)
  of_u, of_w = SCALE * d @ w, SCALE * d.T @ u

  def along(v, unit):
    return (v * unit).sum(axis=1, keepdims=True) * unit

  of_g = (of_u - along(of_u, u)) / lengths[0]
  of_table = np.zeros_like(table)
  of_table[ids] = (of_w - along(of_w, w)) / lengths[1]
  return [x.T @ of_g, of_g.sum(axis=0), of_table]


def held(y, client, m, most):
  """Returns the rows that a client holds, and FedSS's correction of them."""
  pair = tf.constant([SEED, 0])
  seed = randomness.client_seed(
    randomness.round_seed(pair, 0), tf.constant(client, tf.int64), randomness.Purpose.NEGATIVES
  )
  found = request.OwnAndSampled(N, most, m).held_rows(tf.constant(y), seed)
  ids = found.ids.numpy()[found.mask.numpy()]
  own = np.isin(ids, y)
  others = N - own.sum()
  return ids, np.where(own, 0.0, np.log(others / max((~own).sum(), 1)))


@pytest.mark.slow
@pytest.mark.usefixtures('in_process')
def test_the_noise_is_that_of_the_derivation():
  dataset, model = noisy_dataset(), tiny.model(N)
  found = studies.noises(dataset, model, CONFIG)
  assert [*found] == [5, 10, 20, 40, 80, N - 1]
  initial = model.init(tf.constant([SEED, 0]))
  weights = [
    *(initial.encoder[name].numpy() for name in ('kernel', 'bias')),
    initial.class_table.numpy(),
  ]
  for m in (5, 80):
    noise = []
    for place, numbers in enumerate([np.arange(32), np.arange(47, 79)]):
      x, y = dataset.train.pool.examples(numbers)
      exact = gradients(x, y, weights, np.arange(N), 0.0)
      each = [gradients(x, y, weights, *held(y, place * CLIENTS + k, m, 4)) for k in range(CLIENTS)]
      mean = [np.mean(parts, axis=0) for parts in zip(*each, strict=True)]
      apart = [np.abs(a - b).ravel() for a, b in zip(mean, exact, strict=True)]
      noise.append(RATE * np.concatenate(apart).mean())
    np.testing.assert_allclose(found[m], np.mean(noise), rtol=1e-4)
  assert found[N - 1] < 1e-7


def test_few_classes_outside_of_a_batch_are_refused():
  for dataset in (noisy_dataset(84), noisy_dataset(sizes=(5, 7, 9))):
    with pytest.raises(errors.InputError, match='num_classes'):
      studies.noises(dataset, None, CONFIG)
