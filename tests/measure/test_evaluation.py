"""Evaluation of a global model on a data set."""

import numpy as np
import pytest
import tensorflow as tf

from datasets import client_data
from tests import tiny
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
  """A model, its weights, and a data set with all three splits."""
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
