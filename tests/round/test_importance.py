"""FedIR's weights use all examples of a client, also if the client has few rows."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tests import registered, tiny
from tests.round import test_robust
from tff_xc import errors, heads
from tff_xc.algorithms import fedvc
from tff_xc.encoders import encoder
from tff_xc.options import importance
from tff_xc.round import examples, process, request

pytestmark = pytest.mark.usefixtures('in_process', 'built_once')

# The client has the classes 0, 3 and 5, and uses two examples in this round.
ALL_Y = np.array([0, 3, 3, 5, 3, 0], np.int32)
N = registered.N
TARGET = np.arange(N, dtype=float)
WEIGHTS = importance.Importance(importance_weights='train')


def clients():
  first, second = tiny.cohort([[3, 0], [7, 7, 9]])
  return [first._replace(all_labels=ALL_Y), second]


def after(made, cohort, rounds=2):
  state, metrics = tiny.run(process.build_process(made, 3), rounds, lambda _: cohort)
  return state.weights, metrics['loss']


@pytest.mark.parametrize('target', [None, TARGET])
def test_a_class_weighs_its_share_of_the_target_over_its_own(target):
  held = request.OwnAndSampled(N, 4, 3).held_rows(ALL_Y, tf.constant([1, 2]))
  p = np.full(N, 1 / N) if target is None else target / target.sum()
  sent = None if target is None else tf.constant(p[held.ids], tf.float32)
  slots = tf.range(tf.size(held.ids))
  one_each = examples.ClientExamples((), slots, 0, ())
  used = importance.Importance(importance_weights='train', beside=target, num_classes=N)
  found = used.examples(one_each, held, sent).weights.numpy()
  q = np.bincount(ALL_Y, minlength=N) / len(ALL_Y)
  own = held.counts.numpy() > 0
  ids = held.ids.numpy()
  np.testing.assert_allclose(found[own], p[ids[own]] / q[ids[own]], rtol=1e-6)
  # The weight of a negative or of padding is 0, not infinite.
  np.testing.assert_array_equal(found[~own], 0)
  # On the client's classes, E_q[w l] = E_p[l] (eq. 2).
  np.testing.assert_allclose((found * q[ids]).sum(), p[[0, 3, 5]].sum(), 1e-5)


@pytest.mark.slow
def test_on_clients_of_one_class_fedir_is_fedavg():
  cohort = tiny.cohort([[4, 4, 4], [1], [9, 9]])
  plain = registered.algorithm('fedavg')
  expected, _ = after(plain, cohort)
  found, _ = after(WEIGHTS.weighted(plain, TARGET), cohort)
  tiny.assert_same_weights(found, expected, 1e-6)


def test_examples_of_classes_without_probability_do_not_count():
  plain = registered.algorithm('fedavg')
  one_hot = np.eye(N)[3]
  made = WEIGHTS.weighted(plain, one_hot)
  # Batches have two examples. All weights of one batch are zero.
  both, only = tiny.cohort([[3, 0, 0, 0], [3]])
  only = only._replace(x=both.x[:1])
  state, sent = test_robust.first_state(made), test_robust.Sent(made)
  update, _ = sent.of(state, both)
  assert np.isfinite(update.measured['loss'])
  (of_both, _), (of_only, _) = (sent.changes(state, client) for client in (both, only))
  assert of_both['class'].any()
  tiny.assert_same_weights(of_both, of_only, 1e-6)


def test_what_has_no_weights_is_refused():
  plain = registered.algorithm('fedavg')
  for target in (TARGET[1:], -TARGET, 0 * TARGET, TARGET + np.inf):
    with pytest.raises(ValueError, match=f'has {N} finite numbers'):
      WEIGHTS.weighted(plain, target)
  sequence = dataclasses.replace(
    plain.model.encoder,
    tied={'feature': encoder.feature_table(N)},
    targets=lambda x, y: (y, y),
  )
  for changes, message in (
    ({'label_sets': True}, 'sets of labels'),
    ({'head': heads.HashedHead(N, 2, 5)}, 'hashes'),
    ({'head': heads.HashedHead(N, 1, 5)}, 'hashes'),
    ({'encoder': sequence}, 'several targets'),
  ):
    model = dataclasses.replace(plain.model, **changes)
    with pytest.raises(errors.InputError, match=message):
      WEIGHTS.weighted(dataclasses.replace(plain, model=model))
  # A uniform target changes nothing.
  given = {'model': tiny.model(N), 'importance_weights': 'train'}
  assert fedvc.FedIR.made(model=tiny.model(N)).part('importance').beside is None
  made = fedvc.FedIR.made(**given, class_probabilities=TARGET)
  assert made.part('importance').beside is not None
  with pytest.raises(ValueError, match="'train' needs class_probabilities"):
    fedvc.FedIR.made(**given)
