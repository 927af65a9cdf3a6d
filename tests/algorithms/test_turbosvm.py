"""TurboSVM-FL compared with scikit-learn: the server step, and whole rounds."""

import numpy as np
import pytest
import tensorflow as tf

from tasks import configuration
from tests import sameness, tiny
from tests.algorithms import numpy_fedavg, sklearn_turbosvm as reference, test_fedavg
from tff_xc import errors, heads
from tff_xc.algorithms import registry, svm, svm_kernel, turbosvm
from tff_xc.experiment import checkpoints
from tff_xc.round import folding, optimizers, server

pytestmark = pytest.mark.usefixtures('tff_worker')

COHORTS = test_fedavg.COHORTS
# With these settings, a fit equals scikit-learn's to 1e-5.
EXACT = {'svm_tolerance': 1e-6, 'svm_steps': 10**6, 'svm_rounds': 3}
WITH_ADAM = {
  'local_training': test_fedavg.FULL_BATCH,
  'logits_learning_rate': 0.05,
  'logits_epsilon': 1e-2,
  **EXACT,
}
COUNTS = np.float32([5, 1, 2, 9])


CLASSES, DIM, CLIENTS = 6, 4, len(COUNTS)
DRAWN = np.random.default_rng(5)
# Rows [M, n, d] as clients could send them, and their means.
ROWS = DRAWN.normal(size=[CLASSES, DIM])
ROWS = np.float32(ROWS + 0.3 * DRAWN.normal(size=[CLIENTS, CLASSES, DIM]))
MEAN = (COUNTS[:, None, None] * ROWS).sum(0) / COUNTS.sum()


def take(step, seed=(1, 2), state=None, counts=COUNTS, rows=ROWS):
  """Returns (state, rows, metrics) after a round in which clients send these rows."""
  clients, classes, dim = rows.shape
  merged = folding.StackedRows(
    np.tile(np.arange(classes, dtype=np.int32), clients),
    tf.constant(rows.reshape(-1, dim)),
    np.repeat(counts, classes),
  )
  if state is None:
    state = step.initialize(tf.TensorSpec([classes, dim]))
  context = server.StepContext(tf.constant(seed), tf.constant(0), merged, lambda: None)
  state, new, measured = step.next(state, tf.zeros([classes, dim]), context)
  return state, new.numpy(), measured


def make(classes=CLASSES, **changes):
  bound = svm.Bound(1.0, 'constant')
  defaults = {'tolerance': 1e-6, 'steps': 10**6, 'bound': bound}
  return svm.SupportVectors(classes, **(defaults | changes))


def test_three_rounds_equal_the_reference():
  """Tests selected rows, a decreasing C, and an Adam whose state is kept between rounds."""
  process = tiny.process('turbosvm', **WITH_ADAM)
  adam = numpy_fedavg.Server('adam', 0.05, epsilon=1e-2)
  state = process.initialize()
  weights, seen = tiny.as_numpy(state.weights), set()
  for number, cohort in enumerate(COHORTS):
    trained = [numpy_fedavg.train_client(weights, c.x, c.labels)[0] for c in cohort]
    counts = np.array([len(c.labels) for c in cohort])
    kernel, bias, _ = numpy_fedavg.mean(trained, counts)
    rows = np.array([table for *_, table in trained])
    points = np.float32(rows.transpose(1, 0, 2))
    c = (3 - number) / 3
    supports, dual, _ = reference.fit(points, 'linear', c, 1e-6, -1)
    table = reference.selected(rows, counts, supports)
    gradient = reference.similarity_gradient(points, dual, 'linear', table)
    [table] = adam([table], [gradient])
    output = process.next(state, cohort)
    state, metrics = output.state, output.metrics
    found = tiny.as_numpy(state.weights)
    tiny.assert_near(found, (kernel, bias, table), 1e-3)
    # Continue from the found weights, because a fit is not a continuous function of its points.
    weights = found
    of_class = supports.sum(1)
    seen |= set(of_class)
    assert metrics['support_vectors'] == np.float32(of_class.mean())
    assert metrics['support_vectors_least'] == of_class.min()
    assert metrics['support_vectors_most'] == of_class.max()
    assert metrics['support_vectors_class_1'] == of_class[1]
    assert metrics['machines_stopped'] == 0
    assert 0 < metrics['pair_similarity'] < 1
  assert len(seen) > 1


def test_without_spreadout_rows_are_means_of_support_vectors():
  state, new, measured = take(make())
  supports, _, _ = reference.fit(ROWS.transpose(1, 0, 2), 'linear', 1.0, 1e-6)
  wanted = reference.selected(ROWS, COUNTS, supports)
  np.testing.assert_allclose(new, wanted, atol=1e-6)
  assert 4 > measured['support_vectors'] > 1
  assert state == ()
  assert np.abs(new - MEAN).max() > 0.01
  _, new, measured = take(make(), counts=COUNTS[:1], rows=ROWS[:1])
  np.testing.assert_allclose(new, ROWS[0], atol=1e-6)
  assert measured['support_vectors'] == 1


@pytest.mark.slow
def test_a_bias_is_the_last_coordinate_of_a_row():
  model = tiny.model(head=heads.LinearHead())
  process = tiny.process('turbosvm', model=model, svm_spreadout=False, **EXACT)
  [client, *_] = COHORTS[0]
  start = process.initialize()
  assert start.weights.class_table.shape == (12, tiny.DIM + 1)
  # The clients are equal, so half of their points are enough.
  both = process.next(start, [client, client._replace(client_id=np.int64(9))])
  alone = tiny.process('fedavg', model=model)
  wanted = alone.next(alone.initialize(), [client]).state.weights
  tiny.assert_same_weights(both.state.weights, wanted, 1e-5)


@pytest.mark.slow
def test_clients_that_do_not_count():
  """A client without examples, and a client whose update is not finite."""
  process = tiny.process('turbosvm', svm_spreadout=False, **EXACT)
  broken = COHORTS[1][0]._replace(x=np.full_like(COHORTS[1][0].x, np.nan))
  nobody = tiny.cohort([[]])

  def run(more):
    return tiny.run(process, 1, lambda _: [*COHORTS[0], *more])

  (a, with_them), (b, without) = run([broken, *nobody]), run([])
  tiny.assert_same_weights(a.weights, b.weights, 0)
  assert with_them['clients_dropped'] == 1
  assert with_them['support_vectors'] == without['support_vectors']
  state = process.next(a, nobody).state
  tiny.assert_same_weights((state.weights, state.server), (a.weights, a.server), 0)


def test_sizes_of_subsets():
  size = turbosvm.subset_size
  assert [size(s, 100) for s in (1.0, 0.29, 0.001, 2, 100)] == [
    100, 29, 2, 2, 100,
  ]  # fmt: skip
  for wrong in (1.5, 101):
    with pytest.raises(errors.InputError, match=f'--svm_classes={wrong}'):
      size(wrong, 100)
  with pytest.raises(errors.InputError, match='at least 2 classes'):
    tiny.process('turbosvm', model=tiny.model(1))
  assert size(0.5, None) is None
  with pytest.raises(errors.InputError, match=r'--svm_classes=2\.5'):
    configuration.resolve('femnist', 'turbosvm', {'svm_classes': 2.5})
  with pytest.raises(errors.InputError, match='from 2 to 62'):
    configuration.resolve('femnist', 'turbosvm', {'svm_classes': 63})


def test_schedules():
  def of(*a):
    return [float(svm.Bound(*a)(t)) for t in (0, 1, 3, 9)]

  np.testing.assert_allclose(of(1.0, 'decreasing', 4), [1, 0.75, 0.25, 0.25])
  np.testing.assert_allclose(of(2.0, 'increasing', 4), [0.5, 1, 2, 2])
  assert of(0.5, 'constant', 4) == [0.5] * 4
  assert svm.Bound(1, 'constant')(0).dtype == tf.float32
  first, _, _, later = of()
  np.testing.assert_allclose([first, later], [1, 192 / 201], rtol=1e-6)


@pytest.mark.slow
def test_momentum_moves_classes_that_are_not_drawn():
  """Compares three rounds with NumPy. As published, one Adam optimizer covers all rows."""
  adam = numpy_fedavg.Server('adam', 0.05, epsilon=1e-2)
  optimizer = optimizers.TorchAdam(0.05, epsilon=1e-2)
  step, state = make(subset=3, optimizer=optimizer), None
  strayed, drawn = 0, set()
  for seed in range(3):
    state, new, measured = take(step, seed=(seed, 0), state=state)
    classes = step.drawn(tf.constant([seed, 0])).numpy()
    drawn.add(tuple(classes))
    points = ROWS[:, classes].transpose(1, 0, 2)
    supports, dual, _ = reference.fit(points, 'linear', 1.0, 1e-6, -1)
    assert measured['support_vectors'] == np.float32(supports.sum(1).mean())
    assert np.isnan(measured['support_vectors_class_1']) != (1 in classes)
    table = np.float64(MEAN)
    table[classes] = reference.selected(ROWS[:, classes], COUNTS, supports)
    gradient = np.zeros_like(table)
    gradient[classes] = reference.similarity_gradient(
      np.float64(points), dual, 'linear', table[classes]
    )
    [table] = adam([table], [gradient])
    np.testing.assert_allclose(new, table, atol=2e-3)
    others = np.setdiff1d(np.arange(6), classes)
    strayed = max(strayed, np.abs(new - MEAN)[others].max())
  assert strayed > 1e-3
  assert len(drawn) > 1


@pytest.mark.slow
def test_a_class_without_support_vectors_takes_the_mean():
  _, new, measured = take(make(tolerance=10.0))  # The fit takes no step.
  np.testing.assert_allclose(new, MEAN, atol=1e-6)
  assert measured['support_vectors_most'] == 0
  # Support vectors with weight zero do not count.
  _, new, measured = take(make(), counts=np.float32([0, 0, 0, 9]))
  np.testing.assert_allclose(new, ROWS[3], atol=1e-6)
  assert measured['support_vectors_least'] < 4


def test_adams_state_goes_through_a_checkpoint(tmp_path):
  process = tiny.process('turbosvm', **WITH_ADAM)
  half, _ = tiny.run(process, 1, COHORTS.__getitem__)
  checkpoints.prepare(tmp_path)
  checkpoints.save(tmp_path, half, 1)
  [step] = half.server.tables['class'].steps
  assert step['step'] == 1
  assert np.abs(step['sum']).max() > 0
  again, *_ = checkpoints.load_newest(tmp_path, process.initialize())
  after = (process.next(state, COHORTS[1]).state for state in (half, again))
  ends = [(state.weights, state.server) for state in after]
  tiny.assert_same_weights(*ends, 0)


def test_every_setting_reaches_the_step():
  given = {
    'svm_c': 0.3, 'svm_schedule': 'increasing', 'svm_rounds': 7,
    'svm_kernel': 'polynomial', 'svm_degree': 4, 'svm_tolerance': 0.01,
    'svm_steps': 9, 'svm_classes': 5.0, 'logits_learning_rate': 0.5,
    'logits_epsilon': 0.1, 'prox_mu': 0.02, 'server_optimizer': 'amsgrad',
  }  # fmt: skip
  made = registry.get('turbosvm').made(model=tiny.model(), **given)
  assert len(made.penalties) == 1
  spec = {'a': tf.TensorSpec([1])}
  assert 'largest' in made.encoder_optimizer.initialize(spec)
  [step] = made.tables[0].steps
  adam = optimizers.TorchAdam(0.5, epsilon=0.1)
  expected = svm.SupportVectors(
    12, svm.Bound(0.3, 'increasing', 7), svm_kernel.Kernel('polynomial', 4), 5, 0.01, 9, adam
  )
  assert sameness.same(step, expected)


def test_what_does_not_apply_is_refused():
  resolve = registry.get('turbosvm').resolve
  for given, problem in (
    ({'svm_degree': 3}, 'svm_kernel=polynomial'),
    (
      {'svm_schedule': 'constant', 'svm_rounds': 3},
      '--svm_rounds does not apply with --svm_schedule=constant',
    ),
    ({'svm_spreadout': False, 'logits_learning_rate': 1.0}, 'svm_spreadout'),
    ({'svm_c': 0.0}, 'more than 0'),
  ):
    with pytest.raises(errors.InputError, match=problem):
      resolve(given, {})
  values = resolve({}, {})
  assert (values['server_learning_rate'], values['svm_rounds']) == (1.0, 201)
