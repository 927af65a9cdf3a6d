"""Messages in bfloat16: which numbers are rounded, and the bytes of messages."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tasks import configuration
from tests import registered, tiny
from tests.algorithms import numpy_fedss, test_fedss
from tff_xc import errors
from tff_xc.measure import communication
from tff_xc.options import compression
from tff_xc.round import client_update, examples, merge, personal, process as process_lib, tables

pytestmark = pytest.mark.usefixtures('in_process')

ROUNDED = {'message_precision': 'bfloat16'}
LABELS = [0, 0, 3, 5, 7]
ROUND_SEED = tf.constant([1, 2, 3, 4, 5])
OF_ENCODER = {'kernel', 'bias'}


def rounded(values):
  """Returns float32 numbers rounded to bfloat16 by NumPy's extension type."""
  half = np.asarray(values, np.float32).astype(tf.bfloat16.as_numpy_dtype)
  return half.astype(np.float32)


def test_numbers_are_rounded_to_the_nearest_and_ties_to_the_even():
  used, ulp = compression.Compression(message_precision='bfloat16'), 2.0**-7
  given = [1 + ulp / 2, 1 + 1.5 * ulp, 1 + 0.51 * ulp, -1 - ulp / 2, 3.4e38]
  found = used.decoded(tf.constant(given), (), ()).numpy()
  np.testing.assert_array_equal(found, np.float32([1, 1 + 2 * ulp, 1 + ulp, -1, np.inf]))
  drawn = np.random.default_rng(0).normal(size=[50, 9]).astype('float32')
  drawn *= np.float32(10.0) ** np.arange(-4, 5)
  found = used.decoded(tf.constant(drawn), (), ()).numpy()
  np.testing.assert_array_equal(found, rounded(drawn))
  assert (found != drawn).mean() > 0.9


@pytest.mark.slow
def test_two_rounds_equal_the_numpy_reference():
  """Also compares compiled rounds. The server's sums and momentum are not rounded."""
  settings = {
    **{'max_positives': 4, 'local_training': test_fedss.FULL_BATCH},
    **{'negatives': 4, 'softmax_correction': 'negatives'},
  }
  process = tiny.process('fedss', **settings, **ROUNDED)
  state = process.initialize()

  def reference(through):
    weights = tiny.as_numpy(state.weights)
    velocity = [np.zeros_like(w) for w in weights]
    for number, cohort in enumerate(test_fedss.COHORTS[:2]):
      clients = []
      for client in cohort:
        held = test_fedss.held_ids(4, client, number)
        deltas = numpy_fedss.train_client(
          'fedss', [through(w) for w in weights], held, client.x, client.labels, correct=True
        )
        clients.append((held, [through(d) for d in deltas], len(client.labels)))
      weights, velocity = numpy_fedss.server_round(
        weights, velocity, clients, learning_rate=1.0, momentum=0.9
      )
    return np.concatenate([np.ravel(w) for w in weights])

  expected = reference(lambda t: rounded(t).astype(float))
  after = state
  for cohort in test_fedss.COHORTS[:2]:
    after = process.next(after, cohort).state
  found = tiny.as_numpy(process.get_model_weights(after))
  found = np.concatenate([np.ravel(w) for w in found])
  far = np.abs(reference(lambda t: t) - expected)
  assert (far > 2e-5).mean() > 0.5
  # Computations in float64 may round a number to the other neighbor.
  assert (np.abs(found - expected) < 3e-6).mean() > 0.9
  np.testing.assert_allclose(found, expected, atol=1e-3)


def a_client(made):
  """Returns (a client's examples, all weights with random numbers, the client's rows)."""
  [client] = tiny.cohort([LABELS])
  client = tf.nest.map_structure(tf.constant, client)
  if made.client_state:
    kept = examples.nothing_kept(made.client_state.spec)
    client = client._replace(state=tf.nest.map_structure(tf.constant, kept))
  random = np.random.default_rng(1)
  weights = tf.nest.map_structure(
    lambda s: tf.constant(random.normal(size=s.shape), tf.float32), made.model.weight_specs()
  )
  held = tables.held_rows(made.model, made.tables, client, ROUND_SEED)
  return client, weights, held


@pytest.mark.parametrize(
  ('name', 'given', 'has_already'),
  [
    ('fedss', {}, set()),
    ('fedss', {'trainable': 'head'}, OF_ENCODER),
    ('fedss', {'trainable': 'body'}, set()),  # The client requests only some rows.
    ('fullsoftmax', {'importance_weights': 'train'}, set()),
    ('fedavg', {'model': tiny.model_with_statistics()}, set()),
    ('fedaws', {}, set()),
    ('turbosvm', {}, set()),
    ('fedproto', {}, set()),
    ('scaffold', {}, set()),
    pytest.param('fedmlh', {}, set(), marks=pytest.mark.slow),
    pytest.param('fedrep', {}, {'class'}, marks=pytest.mark.slow),
    ('fedbabu', {}, {'class'}),
    ('fedss', {'robust_aggregation': 'clipping', 'clipping_norm': 0.1}, set()),
  ],
)
def test_a_client_receives_and_sends_rounded_numbers(name, given, has_already):
  """Weights that the client has from the start are exact. Sent rows are changes."""
  made = registered.algorithm(name, **given, **ROUNDED)
  exact = tiny.without_part(made, 'compression')
  client, whole, held = a_client(made)
  if name == 'fedproto':  # All classes have a prototype.
    rows = whole.class_table.numpy()
    rows[:, -1] = 1
    whole.tables['class'] = tf.constant(rows)
  weights = personal.received(made, whole, held)
  arrived = tf.nest.map_structure(lambda t: tf.constant(rounded(t)), weights)
  for part, new in zip(weights, arrived, strict=True):
    new |= {n: t for n, t in part.items() if n in has_already}

  def send(one, weights):
    return client_update.build(one)(weights, held, client, ROUND_SEED)

  found, plain = send(made, weights), send(exact, arrived)
  for a, b in zip(found.encoder_delta.values(), plain.encoder_delta.values(), strict=True):
    np.testing.assert_array_equal(a, rounded(b))
  sent, rows = (u.rows['class'].numpy() for u in (found, plain))
  if made.tables[0].merge.sends_deltas:
    np.testing.assert_array_equal(sent, rounded(rows))
  else:
    mask = held['class'].mask.numpy()
    assert mask.any()
    change = rounded(rows - arrived.class_table.numpy())
    wanted = weights.class_table.numpy() + change
    np.testing.assert_array_equal(sent[mask], wanted[mask])
    assert not sent[~mask].any()
  # Client states and control variates are not rounded.
  del found.told.replies['compression']
  tf.nest.map_structure(
    np.testing.assert_array_equal,
    (found.told, found.state, found.weight),
    (plain.told, plain.state, plain.weight),
  )
  of_all = [*plain.encoder_delta.values(), rows]
  assert any((rounded(t) != t).any() for t in map(np.asarray, of_all))


@dataclasses.dataclass(frozen=True)
class Large(merge.SumRows):
  """Sends two numbers that float32 can represent. Bfloat16 cannot, nor float32 their difference."""

  def sent(self, before, after):
    first = tf.one_hot(0, tf.shape(before)[0])[:, None]
    return after - before + first * [3.4e38, -3.4e38, 0.0]


def test_a_client_beyond_its_range_is_dropped():
  made = registered.algorithm('fullsoftmax', **ROUNDED)
  table = dataclasses.replace(made.tables[0], merge=Large())
  made = made.with_table(table)
  client, weights, held = a_client(made)
  found, exact = (
    client_update.build(one)(weights, held, client, ROUND_SEED)
    for one in (made, tiny.without_part(made, 'compression'))
  )
  assert (float(found.measured['dropped']), float(exact.measured['dropped'])) == (1, 0)
  assert float(found.weight) == 0
  for sent in (*found.encoder_delta.values(), found.rows['class']):
    assert not np.any(sent)


OF_VARIATES = (18 + registered.N * tiny.DIM) * 4


@pytest.mark.parametrize(
  ('name', 'given', 'down', 'up'),
  [
    # The encoder has 18 numbers. The client has 5 rows of 3 numbers. It sends ids and its weight.
    ('fedss', {}, 36 + 5 * 6, 36 + 5 * (4 + 4 + 6) + 4),
    ('fullsoftmax', {}, 36 + 5 * 6, 36 + 5 * 6 + 4),
    ('turbosvm', {}, 36 + 5 * 6, 36 + 5 * 6 + 4),
    ('fedaws_baseline2', {}, 36 + 5 * 6, 36 + 5 * 4 + 4),
    # A probability is a float32.
    ('fedss', {'importance_weights': 'train'}, 36 + 5 * (6 + 4), 36 + 5 * (4 + 4 + 6) + 4),
    ('fedss', {'trainable': 'head'}, 5 * 6, 5 * (4 + 4 + 6) + 4),
    ('fedbabu', {}, 36, 36 + 4),
    ('scaffold', {}, 36 + 30 + OF_VARIATES, 36 + 30 + OF_VARIATES + 4),
  ],
)
def test_the_bytes_of_a_tiny_model(name, given, down, up):
  def of(**more):
    return communication.messages(registered.algorithm(name, **given, **more))

  plain, found = (m.of_round({'class': 5}, {'class': 6}) for m in (of(), of(**ROUNDED)))
  assert found['bytes_down_per_client'] == down
  assert found['bytes_up_per_client'] == up
  assert found['client_parameters_peak'] == plain['client_parameters_peak']
  assert plain['client_parameters_peak'] == 18 + 6 * 3


def test_the_saving_is_of_full_softmax_in_float32():
  found = communication.messages(registered.algorithm('fullsoftmax', **ROUNDED))
  numbers = 18 + registered.N * tiny.DIM
  saved = 1 - (4 * numbers + 4) / (8 * numbers + 4)
  assert found.saving(4 * numbers + 4) == pytest.approx(saved)
  of_float32 = communication.messages(registered.algorithm('fullsoftmax'))
  assert of_float32.saving(8 * numbers + 4) == 0


def test_what_it_does_not_go_with_is_refused():
  with pytest.raises(errors.InputError, match='message_precision'):
    configuration.resolve('glyphs', 'centralized', ROUNDED)
  with pytest.raises(errors.InputError, match='float32, bfloat16'):
    configuration.resolve('glyphs', 'fedavg', {'message_precision': 'float16'})
  configuration.resolve('glyphs', 'fedavg', {**ROUNDED, 'robust_aggregation': 'median'})
  hidden = tiny.hidden(1.0, 1.0, 4.0)
  made = registered.algorithm('fedss', **ROUNDED)
  with pytest.raises(errors.InputError, match='message_precision'):
    process_lib.build_process(made.with_part(hidden))
