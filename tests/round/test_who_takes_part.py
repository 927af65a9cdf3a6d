"""Clients with wrong examples, without examples, or whose update is dropped."""

import collections
import math

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests import tiny, tiny_sparse
from tff_xc.algorithms import fedss
from tff_xc.round import algorithm, process as process_lib, tables
from tff_xc.runtime import client_error

pytestmark = pytest.mark.usefixtures('in_process')

N = 12
SOUND, OTHER = tiny.cohort([[0, 0, 3, 5], [7, 3]], seed=1)
NOISE = tff.aggregators.DifferentiallyPrivateFactory.gaussian_fixed(0.1, 100, 1.0)
EMPTY = tiny.cohort([[], []])[1]


def build(method='posonly', **changes):
  if method == 'fullsoftmax' and not changes:
    return tiny.shared_process()
  own = {
    'posonly': {'max_positives': 6},  # As in `test_dispatch`.
    'fedmlh': {'hash_tables': 2, 'hash_buckets': 5},
  }
  return tiny.process(method, **own.get(method, {}), **changes)


def broken(client):
  return client._replace(x=np.full_like(client.x, np.nan))


SEVEN = {'x': np.zeros([7, 5], np.float32)}
SEVEN |= dict.fromkeys(('labels', 'all_labels'), np.arange(7, dtype=np.int32))


def labelled(client, labels):
  y = np.asarray(labels, np.int32)
  return client._replace(labels=y, all_labels=y)


@pytest.mark.parametrize(
  'method',
  [
    'posonly',
    pytest.param('fullsoftmax', marks=pytest.mark.slow),
    pytest.param('fedmlh', marks=pytest.mark.slow),
  ],
)
@pytest.mark.parametrize('label', [12, -1])
def test_a_label_outside_the_classes_fails_and_names_the_client(method, label):
  bad = labelled(OTHER, [7, label])
  with pytest.raises(client_error.ClientError, match=rf'client 1: class \[{label}\]'):
    tiny.run(build(method), 1, lambda _: [SOUND, bad])


@pytest.mark.parametrize(
  ('name', 'changes', 'message'),
  [
    ('fullsoftmax', {'x': SOUND.x[:3]}, '4 label'),
    # A class of the examples is missing in `all_labels`.
    ('posonly', {'all_labels': SOUND.labels[:3]}, r'class \[5\]'),
    ('posonly', SEVEN, r'client 0: .* 7 .*most 6'),
  ],
)
def test_a_client_that_does_not_fit_fails_by_name(name, changes, message):
  bad = SOUND._replace(**changes)
  with pytest.raises(client_error.ClientError, match=message):
    tiny.run(build(name), 1, lambda _: [OTHER, bad])


@pytest.mark.slow
def test_more_features_than_announced_fail_likewise():
  made = fedss.FedSS.made(model=tiny_sparse.model(N), max_positives=2, negatives=2)
  process = process_lib.build_process(algorithm.own_rows(made, 'feature', 2))
  [client] = tiny_sparse.cohort([[(3, [[0, 1], [2]])]])
  with pytest.raises(client_error.ClientError, match=r'3 .*feature.*most 2'):
    process.next(process.initialize(), [client])


def test_own_classes_of_examples_not_drawn_are_no_negatives():
  """P_k contains all classes of the client, so the three negatives are all other classes."""
  made = fedss.FedSS.made(model=tiny.model(6), max_positives=3, negatives=3)
  client = labelled(SOUND, [0, 0, 1, 2])
  drawn = client._replace(x=client.x[:2], labels=client.labels[:2])
  drawn = tf.nest.map_structure(tf.constant, drawn)
  held = tables.held_rows(made.model, made.tables, drawn, tf.constant([1, 2, 3, 4, 5]))
  [ids, mask] = held['class'].ids.numpy(), held['class'].mask.numpy()
  assert sorted(ids[mask]) == [*range(6)]


@pytest.mark.parametrize('method', ['posonly', 'fullsoftmax'])
def test_clients_without_examples_request_and_count_nothing(method):
  process = build(method)
  a, with_empty = tiny.run(process, 1, lambda _: [SOUND, EMPTY])
  b, without = tiny.run(process, 1, lambda _: [SOUND])
  assert dict(with_empty) == dict(without)
  assert with_empty['clients'] == 1
  tiny.assert_same_weights(a.weights, b.weights, 0)


def test_a_round_of_nobody_measures_nothing():
  process = build()
  state = process.initialize()
  for cohort in ([], [EMPTY], [broken(SOUND)]):
    output = process.next(state, cohort)
    measured = {k: float(v) for k, v in output.metrics.items()}
    assert math.isnan(measured['loss'])
    assert math.isnan(measured['local_accuracy'])
    after, before = ((s.weights, s.server) for s in (output.state, state))
    tiny.assert_same_weights(after, before, 0)
    assert output.state.round_number == 1
    nobody = cohort != [broken] and not measured['clients']
    for name in ('class_rows', 'class_rows_largest'):
      assert math.isnan(measured[name]) == nobody
  assert measured['clients_dropped'] == measured['clients'] == 1


UNWEIGHTED = tff.aggregators.UnweightedMeanFactory()


@pytest.mark.parametrize(
  'factory',
  [
    lambda clients: UNWEIGHTED,
    pytest.param(
      lambda clients: tff.learning.robust_aggregator(weighted=False), marks=pytest.mark.slow
    ),
    pytest.param(
      lambda clients: tff.aggregators.clipping_factory(1e3, UNWEIGHTED), marks=pytest.mark.slow
    ),
  ],
)
def test_means_without_weights_are_of_the_clients_that_count(factory):
  alone = build('fullsoftmax', model_aggregator=UNWEIGHTED)
  process = build('fullsoftmax', model_aggregator=factory(2))

  def of(built, cohort):
    return tiny.run(built, 1, lambda _: cohort)[0].weights

  expected = of(alone, [SOUND]).encoder
  for cohort in ([SOUND, broken(OTHER)], [EMPTY, SOUND]):
    tiny.assert_same_weights(of(process, cohort).encoder, expected, 1e-6)


@pytest.mark.parametrize(
  'factory',
  [
    lambda: tff.learning.dp_aggregator(0.1, 100),
    pytest.param(lambda: tff.learning.ddp_secure_aggregator(0.1, 100), marks=pytest.mark.slow),
    lambda: tff.aggregators.clipping_factory(1.0, NOISE),
    pytest.param(
      lambda: tff.aggregators.DifferentiallyPrivateFactory.tree_aggregation(
        0.1,
        100,
        1.0,
        collections.OrderedDict(kernel=tf.TensorSpec([5, 3]), bias=tf.TensorSpec([3])),
      ),
      marks=pytest.mark.slow,
    ),
  ],
)
def test_noise_is_refused_where_rows_are_sent_without_it(factory):
  with pytest.raises(ValueError, match='rows of class'):
    build('fullsoftmax', model_aggregator=factory())


def test_noise_is_taken_where_no_rows_are_sent_and_sums_nowhere():
  with pytest.raises(ValueError, match='SumFactory gives a sum'):
    build('fullsoftmax', model_aggregator=tff.aggregators.SumFactory())
  tiny.process('fedaws_baseline2', max_positives=3, model_aggregator=NOISE)


def _encoder_delta(process, cohort):
  """Returns the change of the encoder in a round, and the round's metrics."""
  before = process.initialize()
  output = process.next(before, cohort)
  pairs = zip(output.state.weights.encoder.values(), before.weights.encoder.values(), strict=True)
  moved = [(np.asarray(a) - np.asarray(b)).ravel() for a, b in pairs]
  return np.concatenate(moved), output.metrics


@pytest.mark.slow
def test_what_an_aggregator_measures_is_among_the_metrics():
  alone = build('fullsoftmax', model_aggregator=UNWEIGHTED)
  cohort = [SOUND, OTHER]
  norms = [np.linalg.norm(_encoder_delta(alone, [c])[0]) for c in cohort]
  clipping = tff.aggregators.clipping_factory(float(np.mean(norms)), UNWEIGHTED)
  process = build('fullsoftmax', model_aggregator=clipping)
  _, measured = _encoder_delta(process, cohort)
  assert measured['aggregator/clipped_count'] == 1
  assert measured['aggregator/clipping_norm'] == np.float32(np.mean(norms))
  assert {(v.dtype, *v.shape) for v in measured.values()} == {(tf.float32,)}


@pytest.mark.slow
def test_distributed_privacy_clips_and_averages(in_process):
  """TFF nests the messages of this aggregator deeper than protobuf allows by default."""
  private = tff.learning.ddp_secure_aggregator(1e-4, 2, zeroing=False, rotation_type='dft')
  clipping = tff.aggregators.clipping_factory(0.1, UNWEIGHTED)
  both = [
    _encoder_delta(
      tiny.process('fedaws_baseline2', max_positives=3, model_aggregator=a), [SOUND, OTHER]
    )
    for a in (private, clipping)
  ]
  assert np.linalg.norm(both[1][0]) > 0.01
  np.testing.assert_allclose(both[0][0], both[1][0], atol=1e-4)
  # The first norm is the one to which the other aggregator clips.
  found = both[0][1]['aggregator/mean_value/l2_clip']
  assert found == np.float32(0.1)


def test_local_batches_are_those_of_the_client_that_takes_the_most():
  many, few = tiny.cohort([[0] * 9, [7, 3]])
  # There are two epochs with batches of 4, 4 and 1 examples.
  for clients, most in (([few, many, EMPTY], 6), ([few], 2), ([EMPTY], 0)):
    _, measured = tiny.run(build('fullsoftmax'), 1, lambda _, c=clients: c)
    assert measured['local_batches'] == most


def test_the_largest_loss_is_that_of_one_client():
  process = build('fullsoftmax')

  def measured(cohort):
    return tiny.run(process, 1, lambda _: cohort)[1]

  clients = tiny.cohort([[0] * 9, [7, 3]])
  # For a cohort of one client, the mean loss is the client's loss.
  losses = [float(measured([client])['loss']) for client in clients]
  assert abs(losses[0] - losses[1]) > 0.01
  found = measured([EMPTY, broken(OTHER), *clients])['loss_largest']
  assert float(found) == pytest.approx(max(losses))
  assert np.isnan(measured([broken(OTHER)])['loss_largest'])
