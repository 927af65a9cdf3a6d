"""Evaluation of a global model on a data set, and the labels with the best scores."""

import collections
import dataclasses

import numpy as np
import pytest
import scipy.sparse
import scipy.special
import tensorflow as tf
from sklearn import metrics

from tests import tiny
from tff_xc import classifier, errors, heads
from tff_xc.data import client_data, hashing, partition, pool, sparse
from tff_xc.encoders import encoder
from tff_xc.measure import catalog, evaluation, ranking

RANDOM = np.random.default_rng(0)


def clients(parts):
  """Returns clients c0, c1, ... with these examples."""
  stack = scipy.sparse.vstack if scipy.sparse.issparse(parts[0].x) else None
  x = (stack or np.concatenate)([part.x for part in parts])
  y = np.concatenate([part.labels for part in parts])
  ends = np.cumsum([0] + [len(part.labels) for part in parts])
  ids = [f'c{i}' for i in range(len(parts))]
  return client_data.PartitionedClientData(
    pool.in_memory(x, y), partition.Partition(ids, ends, np.arange(len(y)))
  )


def some(count, classes):
  x = RANDOM.normal(size=[count, tiny.FEATURES]).astype(np.float32)
  return pool.Examples(x, RANDOM.integers(0, classes, count).astype(np.int32))


@pytest.fixture
def setting():
  """Returns a model, its weights, and a data set with training, test and retrieval examples."""
  model = tiny.model(12)
  parts = [some(count, 12) for count in (700, 0, 900)]
  test, retrieval = some(1300, 12), some(60, 4)
  dataset = client_data.FederatedDataset(
    'tiny', 12, clients(parts), pool.in_memory(*test), pool.in_memory(*retrieval)
  )
  return model, model.init(tf.constant([1, 2])), dataset, parts


def everything(examples):
  return examples.examples(np.arange(len(examples)))


def unit(v):
  return v / np.linalg.norm(v, axis=1, keepdims=True)


def naive_top1(weights, examples):
  e = examples.x @ weights.encoder['kernel'].numpy()
  scores = unit(e) @ unit(weights.class_table.numpy()).T
  return (scores.argmax(1) == examples.labels).mean()


def test_top1_of_test_and_training_examples(setting, monkeypatch):
  model, weights, dataset, parts = setting
  names = ('top1', 'train_top1', 'p@5', 'p@1', 'top5', 'hit@5', 'recall@5')
  measured = evaluation.Evaluator(model, dataset, names)(weights)
  assert list(measured) == list(names)
  assert measured['top1'] == measured['p@1'] < 5 * measured['p@5'] < 5
  # If each example has one label, the three metrics are equal.
  for name in names[-3:]:
    assert measured[name] == pytest.approx(5 * measured['p@5'])
  alone = evaluation.Evaluator(model, dataset, ('top5',))(weights)
  assert alone['top5'] == measured['top5']
  assert measured['top1'] == pytest.approx(naive_top1(weights, everything(dataset.test)))
  together = pool.Examples(
    np.concatenate([p.x for p in parts]), np.concatenate([p.labels for p in parts])
  )
  assert measured['train_top1'] == pytest.approx(naive_top1(weights, together))
  monkeypatch.setattr(evaluation, '_TRAIN_EXAMPLES', 800)
  evaluate = evaluation.Evaluator(model, dataset, ('train_top1',))
  evaluate(weights)
  assert len(evaluate._some_training_examples) == 800
  with pytest.raises(ValueError, match='p@2'):
    evaluation.Evaluator(model, dataset, ('top1', 'p@2'))


def test_no_ranking_has_the_classes_that_an_example_has_seen(setting, monkeypatch):
  model, weights, dataset, _ = setting
  x, y = everything(dataset.test)
  seen = RANDOM.random([len(y), 12]) < RANDOM.random([len(y), 1])
  seen[np.arange(len(y)), y] = RANDOM.random(len(y)) < 0.1
  stops = np.cumsum(seen.sum(axis=1))
  ranges = pool.Ranges(np.nonzero(seen)[1], np.append(0, stops[:-1]), stops, 12)
  test = dataclasses.replace(dataset.test, seen=ranges)
  dataset = dataclasses.replace(dataset, test=test)
  monkeypatch.setattr(evaluation, '_RANKED_AT_ONCE', 512)
  monkeypatch.setattr(evaluation, '_RANKS', 100)
  evaluate = evaluation.Evaluator(model, dataset, ('hit@1', 'hit@10', 'ndcg@5', 'top1'))
  measured = evaluate(weights)
  scores = unit(x @ weights.encoder['kernel'].numpy())
  scores = scores @ unit(weights.class_table.numpy()).T
  scores[seen] = -np.inf
  own = scores[np.arange(len(y)), y, None]
  rank = np.where(np.isfinite(own[:, 0]), (scores > own).sum(1), 99)
  assert measured == pytest.approx(
    {
      'hit@1': (rank < 1).mean(),
      'hit@10': (rank < 10).mean(),
      'ndcg@5': np.where(rank < 5, 1 / np.log2(rank + 2), 0).mean(),
      'top1': (rank < 1).mean(),
    }
  )
  some = np.array([700, 3])
  best = evaluate.predict(weights, test, some)
  assert best.tolist() == [s.argmax() if np.isfinite(s).any() else -1 for s in scores[some]]


def test_f1_and_mcc_are_of_the_predictions_and_distances_of_classes_held(setting):
  model, weights, dataset, parts = setting
  few = pool.Examples(parts[0].x, parts[0].labels % 4)
  dataset = dataclasses.replace(dataset, train=clients([few, parts[1]]))
  names = ('mcc', 'class_distance_mean', 'macro_f1', 'class_distance_min')
  evaluate = evaluation.Evaluator(model, dataset, names)
  y, predictions = dataset.test.labels, evaluate.predict(weights, dataset.test)
  f1 = metrics.f1_score(y, predictions, average='macro', zero_division=0)
  least, mean = ranking.class_distances(weights.class_table.numpy()[:4])
  expected = (metrics.matthews_corrcoef(y, predictions), mean, f1, least)
  measured = evaluate(weights)
  assert list(measured) == list(names)
  assert list(measured.values()) == pytest.approx(expected, rel=1e-5)


def test_classes_without_a_prototype_have_no_distance(setting):
  model, _, dataset, parts = setting
  model = dataclasses.replace(model, head=heads.PrototypeHead())
  weights = model.init(tf.constant([0, 1]))
  table = np.zeros(weights.class_table.shape, np.float32)
  table[:2, -1], table[:2, 0] = 1, (3, -2)
  dataset = dataclasses.replace(
    dataset, train=clients([pool.Examples(parts[0].x, parts[0].labels % 3)])
  )
  measured = evaluation.Evaluator(model, dataset, catalog.DISTANCES)(
    weights._replace(tables={classifier.CLASS: tf.constant(table)})
  )
  assert [*measured.values()] == pytest.approx([2, 2])


@pytest.mark.parametrize('scores', [12 * 500, 2**25])  # In blocks, and all at once.
def test_the_test_loss_is_scikit_learns_log_loss(setting, monkeypatch, scores):
  _, _, dataset, _ = setting
  model = tiny.model(12, head=heads.LinearHead())
  weights = model.init(tf.constant([1, 2]))
  x, y = everything(dataset.test)
  table = weights.class_table.numpy().astype(np.float64)
  logits = x @ weights.encoder['kernel'].numpy() @ table[:, :-1].T + table[:, -1]
  wanted = metrics.log_loss(y, scipy.special.softmax(logits, axis=1), labels=range(12))
  monkeypatch.setattr(evaluation, '_SCORES', scores)
  measured = evaluation.Evaluator(model, dataset, ('test_loss', 'top1'))(weights)
  assert measured == pytest.approx(
    {'test_loss': wanted, 'top1': (logits.argmax(1) == y).mean()}, rel=1e-5
  )
  alone = evaluation.Evaluator(model, dataset, ('test_loss',))(weights)
  assert alone == {'test_loss': measured['test_loss']}


def test_a_head_without_a_logit_for_each_class_has_no_test_loss(setting):
  _, _, dataset, _ = setting
  model = tiny.model(12, head=heads.HashedHead(12, 2, 5))
  assert 'test_loss' not in catalog.measurable(('test_loss',), {'test'})
  weights = model.init(tf.constant([1, 2]))
  with pytest.raises(ValueError, match='a logit of each class'):
    evaluation.Evaluator(model, dataset, ('test_loss',))(weights)


def test_retrieval_is_among_the_embeddings_of_unseen_classes(setting):
  model, weights, dataset, _ = setting
  names = ('map@10', 'map@r', *(f'retrieval_recall@{k}' for k in catalog.AT))
  measured = evaluation.Evaluator(model, dataset, names)(weights)
  x, y = everything(dataset.retrieval)
  embeddings = x @ weights.encoder['kernel'].numpy()
  wanted = ranking.retrieval_scores(embeddings, y)
  assert measured == pytest.approx(wanted, abs=1e-6)


VOCABULARY, CLASSES = 40, 12


def bag_encoder(traces):
  """Returns the encoder g(x) = sum of value * row over an example's features."""

  def init(seed):
    shape = [VOCABULARY, tiny.DIM]
    return collections.OrderedDict(rows=tf.random.stateless_normal(shape, seed))

  def apply(trainable, non_trainable, x, training, seed):
    traces.append(x)
    gathered = tf.gather(trainable['rows'], x.ids) * x.values[:, None]
    lengths = x.row_splits[1:] - x.row_splits[:-1]
    owners = tf.repeat(tf.range(tf.size(lengths)), lengths)
    embeddings = tf.math.unsorted_segment_sum(gathered, owners, tf.size(lengths))
    return embeddings, non_trainable

  return encoder.Encoder(encoder.SparseSpec(VOCABULARY), tiny.DIM, init, apply)


def bags(count):
  lengths = RANDOM.integers(0, 7, count)
  splits = np.cumsum(np.append(0, lengths))
  ids = [np.sort(RANDOM.permutation(VOCABULARY)[:n]) for n in lengths]
  ids = np.concatenate([np.zeros(0), *ids]).astype(np.int32)
  values = RANDOM.normal(size=splits[-1]).astype(np.float32)
  return scipy.sparse.csr_matrix((values, ids, splits), (count, VOCABULARY))


@pytest.fixture
def sparse_setting():
  """Returns a model of sparse examples, its weights, data, label sets and a list of traces."""
  traces = []
  model = classifier.EmbeddingClassifier(bag_encoder(traces), heads.CosineHead(4.0), CLASSES)
  parts = [
    pool.Examples(bags(n), RANDOM.integers(0, CLASSES, n).astype(np.int32)) for n in (300, 0, 450)
  ]
  sets = [np.sort(RANDOM.permutation(CLASSES)[: RANDOM.integers(0, 4)]) for _ in range(1300)]
  splits, ids = np.cumsum([0] + [len(s) for s in sets]), np.concatenate(sets)
  y = scipy.sparse.csr_matrix((np.ones(len(ids), bool), ids, splits), (1300, CLASSES))
  dataset = client_data.FederatedDataset(
    'bags',
    CLASSES,
    clients(parts),
    pool.in_memory(bags(1300), y),
    propensity=sparse.Propensity(np.arange(CLASSES), 750),
  )
  return model, model.init(tf.constant([1, 2])), dataset, sets, traces


def naive_order(weights, x):
  e = x @ weights.encoder['rows'].numpy()
  scores = e @ unit(weights.class_table.numpy()).T
  return np.argsort(-scores, axis=1, kind='stable')


def test_sparse_examples_with_label_sets(sparse_setting):
  model, weights, dataset, sets, traces = sparse_setting
  names = ('p@1', 'ndcg@1', 'p@5', 'psp@1', 'train_top1')
  measured = evaluation.Evaluator(model, dataset, names)(weights)
  assert list(measured) == list(names)
  order = naive_order(weights, everything(dataset.test).x)
  labelled = [(o, s) for o, s in zip(order, sets, strict=True) if len(s)]
  p1 = np.mean([o[0] in s for o, s in labelled])
  p5 = np.mean([len(set(o[:5]) & set(s)) / 5 for o, s in labelled])
  assert measured['p@1'] == measured['ndcg@1'] == pytest.approx(p1)
  assert measured['p@5'] == pytest.approx(p5)
  assert 0 < measured['psp@1'] != measured['p@1']
  hits = [naive_order(weights, x)[:, 0] == y for x, y in map(dataset.train.examples, ('c0', 'c2'))]
  assert measured['train_top1'] == pytest.approx(np.concatenate(hits).mean())
  assert len(traces) == 1  # Block sizes do not cause retracing.
  evaluate, train = evaluation.Evaluator(model, dataset, ()), dataset.train
  for name in ('c0', 'c1'):  # One client has no examples.
    found = evaluate.predict(weights, train.pool, train.numbers(name))
    best = naive_order(weights, train.examples(name).x)[:, 0]
    np.testing.assert_array_equal(found, best)
  # These metrics need exactly one label per example.
  for name in ('top1', 'macro_f1', 'mcc', 'test_loss'):
    with pytest.raises(ValueError, match=f'{name} .*p@1'):
      evaluation.Evaluator(model, dataset, (name,))(weights)
  bare = pool.in_memory(bags(3), scipy.sparse.csr_matrix((3, CLASSES), dtype=bool))
  for part, name in (('test', 'p@1'), ('validation', 'pc_mean_validation')):
    with pytest.raises(errors.InputError, match=f'no {part} example has a label'):
      evaluation.Evaluator(model, dataclasses.replace(dataset, **{part: bare}), (name,))


def best_of_each(scores, k):
  """Sorts all scores, float [n, b]. For ties, the lower label comes first."""
  found = np.full([scores.shape[1], k], -1)
  for example, column in enumerate(scores.T):
    order = np.argsort(-column, kind='stable')
    order = order[np.isfinite(column[order])][:k]
    found[example, : len(order)] = order
  return found


@pytest.mark.parametrize('n', [1, 3, 63, 64, 65, 128, 1000])
@pytest.mark.parametrize('k', [1, 5])
def test_the_best_are_those_of_a_sort_and_ties_go_to_the_lower_label(n, k):
  random = np.random.default_rng(n)
  # Use few different values, so that most scores tie, within groups and between groups.
  scores = random.integers(0, 4, [n, 9]).astype(np.float32)
  scores[:, 0] = 1.0
  # The maxima of groups differ, and some of them tie.
  scores[:, 5:] *= random.random([n, 4]) < 0.01
  # A label without a finite score is never returned.
  scores[:, 1] = np.nan
  scores[3:, 2] = -np.inf
  scores[130:, 3] = np.nan  # The range includes the group of labels 128 and 129.
  scores[::64, 4] = np.inf  # Other labels of the group are finite.
  found = evaluation.top_labels(tf.constant(scores), k)
  assert found.dtype == np.int32
  np.testing.assert_array_equal(found, best_of_each(scores, k))


@pytest.mark.parametrize('score', heads.SCORES)
def test_a_search_finds_the_labels_of_the_largest_scores(score, monkeypatch):
  head = heads.HashedHead(300, 3, 20, score)
  random = np.random.default_rng(0)
  embeddings = random.normal(size=[23, 3, 4]).astype(np.float32)
  table = head.init(tf.constant([1, 2]), 300, 4).numpy()
  of_tables = []
  for r in range(3):
    rows = table[20 * r : 20 * (r + 1)].astype(np.float64)
    z = rows[:, :-1] @ embeddings[:, r].T + rows[:, -1:]
    z = z if score == 'logit' else -np.log1p(np.exp(-z))
    of_tables.append(z[hashing.buckets(np.arange(300), r, 20)])
  join = np.median if score == 'median' else np.mean
  wanted = best_of_each(join(of_tables, axis=0), 5)  # Some labels share all their buckets.
  search = evaluation.LabelSearch(head, 300)
  for most in (300 * 10 + 7, 7):  # Blocks of ten examples, and blocks of one example.
    monkeypatch.setattr(evaluation, '_SCORES', most)
    np.testing.assert_array_equal(search(embeddings, table, 5), wanted)
  assert search(embeddings[:0], table, 5).shape == (0, 5)


def test_scores_of_single_clients(setting):
  model, weights, dataset, parts = setting
  own = dataset.train.partition
  names = ('top1', *catalog.OF_CLIENTS)
  measured = evaluation.Evaluator(model, dataset, names, own)(weights)
  assert list(measured) == list(names)
  shares = [naive_top1(weights, part) for part in parts if len(part.labels)]
  assert measured['client_top1_mean'] == pytest.approx(np.mean(shares))
  assert measured['client_top1_worst'] == pytest.approx(min(shares))
  with pytest.raises(ValueError, match='held-out'):
    evaluation.Evaluator(model, dataset, names)


def test_scores_of_validation_are_of_its_examples_alone(setting):
  model, weights, dataset, _ = setting
  held = pool.in_memory(*some(300, 12))
  dataset = dataclasses.replace(dataset, validation=held)
  capped = 'pc@1', 'pc@3', 'pc@5'
  names = (
    'top1',
    'top1_validation',
    'ndcg@10_validation',
    'hit@10',
    'pc_mean',
    'pc_mean_validation',
    *capped,
  )
  measured = evaluation.Evaluator(model, dataset, names)(weights)

  def of(examples):
    return naive_top1(weights, everything(examples))

  assert measured['top1_validation'] == pytest.approx(of(held))
  assert measured['top1'] == pytest.approx(of(dataset.test))
  swapped = dataclasses.replace(dataset, test=held, validation=dataset.test)
  other = evaluation.Evaluator(model, swapped, ('ndcg@10', 'pc_mean'))(weights)
  for name in ('ndcg@10', 'pc_mean'):
    assert other[name] == measured[f'{name}_validation']
  assert measured['pc_mean'] == pytest.approx(np.mean([measured[name] for name in capped]))
  with pytest.raises(ValueError, match='validation'):
    evaluation.Evaluator(model, dataclasses.replace(dataset, validation=None), names)
