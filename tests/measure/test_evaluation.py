"""Evaluation of a global model on a data set."""

import collections
import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tasks import task as task_lib
from tests import tiny
from tff_xc import classifier
from tff_xc import heads
from tff_xc.data import client_data
from tff_xc.data import example_blocks
from tff_xc.data import sparse
from tff_xc.encoders import encoder
from tff_xc.measure import collapse
from tff_xc.measure import evaluation

RANDOM = np.random.default_rng(0)


class Clients(client_data.LabelledClientData):
  def __init__(self, parts):
    names = [f'c{i}' for i in range(len(parts))]
    super().__init__(names, tf.TensorSpec([tiny.FEATURES], tf.float32))
    self._parts = dict(zip(names, parts, strict=True))

  def labels(self, client_id):
    return self._parts[client_id].y

  def examples(self, client_id):
    return self._parts[client_id]


def some(count, classes):
  x = RANDOM.normal(size=[count, tiny.FEATURES]).astype(np.float32)
  return client_data.Examples(
    x, RANDOM.integers(0, classes, count).astype(np.int32)
  )


@pytest.fixture
def setting():
  """Returns a model, its weights, and a data set with all three splits."""
  model = tiny.model(12)
  parts = [some(count, 12) for count in (700, 0, 900)]
  test, retrieval = some(1300, 12), some(60, 4)
  dataset = client_data.FederatedDataset(
    'tiny', 12, Clients(parts), lambda: test, lambda: retrieval
  )
  return model, model.init(tf.constant([1, 2])), dataset, parts


def unit(v):
  return v / np.linalg.norm(v, axis=1, keepdims=True)


def naive_top1(weights, examples):
  e = examples.x @ weights.encoder['kernel'].numpy()
  scores = unit(e) @ unit(weights.class_table.numpy()).T
  return (scores.argmax(1) == examples.y).mean()


def test_top1_of_test_and_training_examples(setting):
  model, weights, dataset, parts = setting
  evaluate = evaluation.Evaluator(model, dataset, ('top1', 'train_top1'))
  measured = evaluate(weights)
  assert list(measured) == ['top1', 'train_top1']
  assert measured['top1'] == pytest.approx(naive_top1(weights, dataset.test()))
  together = client_data.Examples(
    np.concatenate([p.x for p in parts]), np.concatenate([p.y for p in parts])
  )
  assert measured['train_top1'] == pytest.approx(naive_top1(weights, together))


def test_retrieval_metrics_by_a_naive_loop(setting):
  model, weights, dataset, _ = setting
  measured = evaluation.Evaluator(model, dataset, ('map@10', 'map@r'))(weights)
  x, y = dataset.retrieval()
  e = unit(x @ weights.encoder['kernel'].numpy())
  at_10, at_r = [], []
  for query in range(len(x)):
    distance = np.linalg.norm(e - e[query], axis=1)
    order = [i for i in np.argsort(distance, kind='stable') if i != query]
    hits = [y[i] == y[query] for i in order]
    precision = np.cumsum(hits) / np.arange(1, len(order) + 1) * hits
    at_10.append(precision[:10].sum() / 10)
    at_r.append(precision[: sum(hits)].sum() / sum(hits))
  assert measured['map@10'] == pytest.approx(np.mean(at_10), abs=1e-6)
  assert measured['map@r'] == pytest.approx(np.mean(at_r), abs=1e-6)


def test_no_more_training_examples_than_the_bound(setting, monkeypatch):
  model, weights, dataset, _ = setting
  monkeypatch.setattr(evaluation, '_TRAIN_EXAMPLES', 800)
  evaluate = evaluation.Evaluator(model, dataset, ('train_top1',))
  evaluate(weights)
  assert len(evaluate._examples('train').y) == 800


def test_precision_of_single_labels(setting):
  model, weights, dataset, _ = setting
  evaluate = evaluation.Evaluator(model, dataset, ('p@5', 'top1', 'p@1'))
  measured = evaluate(weights)
  assert list(measured) == ['p@5', 'top1', 'p@1']
  assert measured['p@1'] == measured['top1']
  assert measured['top1'] < 5 * measured['p@5'] < 1


def test_class_distances_of_the_classes_that_clients_hold(setting):
  model, weights, dataset, parts = setting
  few = client_data.Examples(parts[0].x, parts[0].y % 4)
  dataset = dataclasses.replace(dataset, train=Clients([few, parts[1]]))
  names = ('class_distance_mean', 'class_distance_min')
  measured = evaluation.Evaluator(model, dataset, names)(weights)
  smallest, mean = collapse.class_distances(weights.class_table.numpy()[:4])
  assert measured['class_distance_min'] == pytest.approx(smallest, rel=1e-5)
  assert measured['class_distance_mean'] == pytest.approx(mean, rel=1e-5)


def test_refuses_a_metric_that_there_is_not(setting):
  model, _, dataset, _ = setting
  with pytest.raises(ValueError, match='p@2'):
    evaluation.Evaluator(model, dataset, ('top1', 'p@2'))


VOCABULARY, CLASSES = 40, 12


def bag_encoder(traces):
  """Returns g(x) = sum of value * row over an example's features."""

  def init(seed):
    shape = [VOCABULARY, tiny.DIM]
    return collections.OrderedDict(rows=tf.random.stateless_normal(shape, seed))

  def apply(trainable, non_trainable, x, training, seed):
    del training, seed
    traces.append(x)
    gathered = tf.gather(trainable['rows'], x.ids) * x.values[:, None]
    lengths = x.row_splits[1:] - x.row_splits[:-1]
    owners = tf.repeat(tf.range(tf.size(lengths)), lengths)
    embeddings = tf.math.unsorted_segment_sum(
      gathered, owners, tf.size(lengths)
    )
    return embeddings, non_trainable

  return encoder.Encoder(encoder.SparseSpec(VOCABULARY), tiny.DIM, init, apply)


def bags(count):
  lengths = RANDOM.integers(0, 7, count)
  splits = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
  ids = [np.sort(RANDOM.permutation(VOCABULARY)[:n]) for n in lengths]
  return sparse.SparseFeatures(
    splits,
    np.concatenate([np.zeros(0), *ids]).astype(np.int32),
    RANDOM.normal(size=splits[-1]).astype(np.float32),
  )


def dense(x):
  rows = np.zeros([len(x.row_splits) - 1, VOCABULARY], np.float32)
  owners = np.repeat(np.arange(len(rows)), np.diff(x.row_splits))
  rows[owners, x.ids] = x.values
  return rows


@pytest.fixture
def sparse_setting():
  """Returns a sparse examples' model, weights, data, label sets and traces."""
  traces = []
  model = classifier.EmbeddingClassifier(
    bag_encoder(traces), heads.CosineHead(4.0), CLASSES
  )
  parts = [
    client_data.Examples(
      bags(n), RANDOM.integers(0, CLASSES, n).astype(np.int32)
    )
    for n in (300, 0, 450)
  ]
  sets = [
    np.sort(RANDOM.permutation(CLASSES)[: RANDOM.integers(0, 4)])
    for _ in range(1300)
  ]
  y = sparse.LabelSets(
    np.cumsum([0] + [len(s) for s in sets]),
    np.concatenate(sets).astype(np.int32),
  )
  test = client_data.Examples(bags(1300), y)
  dataset = client_data.FederatedDataset(
    'bags',
    CLASSES,
    Clients(parts),
    lambda: test,
    propensity=sparse.Propensity(np.arange(CLASSES), 750),
  )
  return model, model.init(tf.constant([1, 2])), dataset, sets, traces


def naive_order(weights, x):
  e = dense(x) @ weights.encoder['rows'].numpy()
  scores = e @ unit(weights.class_table.numpy()).T
  return np.argsort(-scores, axis=1, kind='stable')


def test_sparse_examples_with_label_sets(sparse_setting):
  model, weights, dataset, sets, traces = sparse_setting
  names = ('p@1', 'ndcg@1', 'p@5', 'psp@1', 'train_top1')
  measured = evaluation.Evaluator(model, dataset, names)(weights)
  assert list(measured) == list(names)
  order = naive_order(weights, dataset.test().x)
  labelled = [(o, s) for o, s in zip(order, sets, strict=True) if len(s)]
  p1 = np.mean([o[0] in s for o, s in labelled])
  p5 = np.mean([len(set(o[:5]) & set(s)) / 5 for o, s in labelled])
  assert measured['p@1'] == measured['ndcg@1'] == pytest.approx(p1)
  assert measured['p@5'] == pytest.approx(p5)
  assert 0 < measured['psp@1'] != measured['p@1']
  hits = [
    naive_order(weights, x)[:, 0] == y
    for x, y in map(dataset.train.examples, ('c0', 'c2'))
  ]
  together = np.concatenate(hits).mean()
  assert measured['train_top1'] == pytest.approx(together)
  assert len(traces) == 1  # Block sizes do not cause retracing.


def test_propensities_are_not_needed_for_precision(sparse_setting):
  model, weights, dataset, *_ = sparse_setting
  dataset = dataclasses.replace(dataset, propensity=None)
  assert evaluation.Evaluator(model, dataset, ('p@3',))(weights)['p@3'] > 0


def test_top1_is_not_defined_for_label_sets(sparse_setting):
  model, weights, dataset, *_ = sparse_setting
  with pytest.raises(ValueError, match='p@1'):
    evaluation.Evaluator(model, dataset, ('top1',))(weights)


def test_predictions_of_one_client_and_of_none(sparse_setting):
  model, weights, dataset, *_ = sparse_setting
  evaluate = evaluation.Evaluator(model, dataset, ())
  x, _ = dataset.train.examples('c0')
  predictions = evaluate.predict(weights, x)
  assert predictions.tolist() == naive_order(weights, x)[:, 0].tolist()
  x, _ = dataset.train.examples('c1')
  assert evaluate.predict(weights, x).shape == (0,)


def test_sparse_training_examples_are_cut(sparse_setting, monkeypatch):
  model, weights, dataset, *_ = sparse_setting
  monkeypatch.setattr(evaluation, '_TRAIN_EXAMPLES', 500)
  evaluate = evaluation.Evaluator(model, dataset, ('train_top1',))
  evaluate(weights)
  x, y = evaluate._examples('train')
  assert example_blocks.count(x) == len(y) == 500


def test_blocks_of_sparse_examples_are_bounded(monkeypatch):
  monkeypatch.setattr(example_blocks, '_FEATURES', 10)
  monkeypatch.setattr(example_blocks, '_EXAMPLES', 4)
  lengths = [3, 3, 4, 1, 25, 0, 10, 0, 0, 0, 0, 0, 1]
  splits = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
  x = sparse.SparseFeatures(
    splits, np.arange(splits[-1]), np.arange(splits[-1])
  )
  blocks = list(example_blocks.blocks(x))
  assert [np.diff(b.row_splits).tolist() for b in blocks] == [
    [3, 3, 4],
    [1],
    [25],
    [0, 10, 0, 0],
    [0, 0, 0, 1],
  ]
  joined = example_blocks.join(blocks)
  for left, right in zip(joined, x, strict=True):
    assert left.tolist() == right.tolist()


def test_a_task_measures_what_its_data_have_examples_for(sparse_setting):
  *_, dataset, _, _ = sparse_setting
  metrics = ('p@1', 'ndcg@3', 'psp@5', 'map@r', 'train_top1')
  names = [f.name for f in dataclasses.fields(task_lib.Task)]
  blank = dict.fromkeys(names[: names.index('by_algorithm')])
  task = task_lib.Task(**blank | {'metrics': metrics})
  assert task.metrics_of(dataset) == ('p@1', 'ndcg@3', 'psp@5', 'train_top1')
  dataset = dataclasses.replace(dataset, propensity=None)
  assert task.metrics_of(dataset) == ('p@1', 'ndcg@3', 'train_top1')
  dataset = dataclasses.replace(dataset, test=None, retrieval=dataset.test)
  assert task.metrics_of(dataset) == ('map@r', 'train_top1')
