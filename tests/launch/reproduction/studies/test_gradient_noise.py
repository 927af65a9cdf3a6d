"""FedSS's gradient noise beside a derivation in NumPy."""

import types

import numpy as np
import pytest
import tensorflow as tf

from launch.reproduction import results
from launch.reproduction.studies import gradient_noise
from tasks import experiment
from tasks import registry as tasks
from tasks.papers import registry
from tests import tiny
from tests.launch.reproduction import small_table
from tff_xc import errors
from tff_xc.data import client_data
from tff_xc.data import partition
from tff_xc.data import pool
from tff_xc.round import randomness
from tff_xc.round import request

N, CLIENTS, RATE, SEED, SCALE = 90, 3, 0.1, 7, 4.0
GRID = (5, 80)  # Some of the study's: each is compiled.
CONFIG = {
  'task': 'tiny',
  'seed': SEED,
  'data_dir': '',
  'options': {},
  'hyperparameters': {
    'clients_per_round': CLIENTS,
    'client_learning_rate': RATE,
    'batch_size': 5,  # It is the study's that counts.
  },
}


def dataset(num_classes=N, sizes=(40, 7, 33)):
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
  along = lambda v, unit: (v * unit).sum(axis=1, keepdims=True) * unit
  of_g = (of_u - along(of_u, u)) / lengths[0]
  of_table = np.zeros_like(table)
  of_table[ids] = (of_w - along(of_w, w)) / lengths[1]
  return [x.T @ of_g, of_g.sum(axis=0), of_table]


def held(y, client, m, most):
  """Returns the rows that a client holds, and FedSS's correction of them."""
  pair = tf.constant([SEED, 0])
  seed = randomness.client_seed(
    randomness.round_seed(pair, 0),
    tf.constant(client, tf.int64),
    randomness.Purpose.NEGATIVES,
  )
  found = request.OwnAndSampled(N, most, m).held_rows(tf.constant(y), seed)
  ids = found.ids.numpy()[found.mask.numpy()]
  own = np.isin(ids, y)
  others = N - own.sum()
  return ids, np.where(own, 0.0, np.log(others / max((~own).sum(), 1)))


@pytest.mark.slow
@pytest.mark.usefixtures('in_process')
def test_the_noise_is_that_of_the_derivation(monkeypatch):
  assert gradient_noise._grid(N - 4) == [5, 10, 20, 40, 80]
  monkeypatch.setattr(gradient_noise, '_grid', lambda most: GRID)
  data, model = dataset(), tiny.model(N)
  scale, found = gradient_noise.noises(data, model, CONFIG)
  assert [*found] == [*GRID, N - 1]
  initial = model.init(tf.constant([SEED, 0]))
  weights = [
    *(initial.encoder[name].numpy() for name in ('kernel', 'bias')),
    initial.class_table.numpy(),
  ]
  batches = [np.arange(32), np.arange(47, 79)]
  noise, size = {m: [] for m in GRID}, []
  for i, numbers in enumerate(batches):
    x, y = data.train.pool.examples(numbers)
    exact = gradients(x, y, weights, np.arange(N), 0.0)
    for m in GRID:
      each = [
        gradients(x, y, weights, *held(y, i * CLIENTS + k, m, 4))
        for k in range(CLIENTS)
      ]
      mean = [np.mean(parts, axis=0) for parts in zip(*each, strict=True)]
      apart = [
        RATE * np.abs(a - b).ravel() for a, b in zip(mean, exact, strict=True)
      ]
      encoder, rows = np.concatenate(apart[:2]), apart[2]
      whole = np.concatenate(apart)
      noise[m].append([whole.mean(), encoder.mean(), rows.mean()])
    size.append(np.abs(np.concatenate([a.ravel() for a in exact])).mean())
  for m in GRID:
    expected = np.mean(noise[m], axis=0)
    np.testing.assert_allclose(found[m], expected, rtol=1e-4)
  assert max(found[N - 1]) < 1e-7
  assert scale == pytest.approx(RATE * np.mean(size), rel=1e-4)


def test_the_study_has_a_table_a_picture_and_values(tmp_path, monkeypatch):
  loaded = dataset(), tiny.model(N)
  task = types.SimpleNamespace(load=lambda *_: loaded)
  halved = 0.2 * 0.5 ** (15 / 75)  # As m = 5 and 80, on an exponential.
  noises = {5: [0.2, 0.1, 0.3], 20: [halved] * 3, 80: [0.1] * 3}
  noises[N - 1] = [0.0] * 3
  monkeypatch.setattr(gradient_noise, 'noises', lambda *_: (0.4, noises))
  monkeypatch.setattr(tasks, 'get', lambda _: task)
  monkeypatch.setattr(experiment, 'install_runtime', lambda _: None)
  lines = results.frame(gradient_noise.measure(CONFIG, tmp_path))
  found = registry.RESULTS['fedss/fig9']
  grid, values = results.Measured(found, 'small', lines).tables()
  assert grid.rows[0] == ('m = 5', '0.2', '0.1', '0.3', '50')
  assert grid.rows[3][0] == 'm = n - |P|'
  assert (tmp_path / 'result.png').read_bytes().startswith(b'\x89PNG')
  shown = {row[0]: row[1] for row in values.rows}
  assert shown.keys() - found.expected.keys() == {
    *(gradient_noise.OF_MOST, gradient_noise.POWER)
  }
  assert float(shown.pop(gradient_noise.POWER)) < 0.9
  assert shown == {
    gradient_noise.OF_ALL: '0',
    gradient_noise.LARGEST_RATIO: '0.8706',
    gradient_noise.EXPONENTIAL: '1',
    gradient_noise.OF_MOST: '0.5',
  }


def test_bad_data_and_settings_are_refused():
  of = lambda *given, **flags: small_table.resolved(
    'fedss/fig9', *given, **flags
  )[1]
  assert of('small')['options']['num_classes'] == 160
  assert of('small', num_classes=82)['options']['num_classes'] == 82
  assert of('paper')['task'] == 'sop'
  noises = gradient_noise.noises
  for problem, call in {
    'no client has 32 examples': lambda: noises(
      dataset(sizes=(9, 8)), tiny.model(N), CONFIG
    ),
    'leaves 80 other': lambda: noises(
      dataset(84, (40, 33)), tiny.model(84), CONFIG
    ),
    # Before the data are loaded.
    'leaves 80 other classes': lambda: of('small', num_classes=81),
    r'leaves \d+ other': lambda: of('small', 'femnist'),
    '--negatives: fedss/fig9 has no': lambda: of('small', negatives=3),
  }.items():
    with pytest.raises(errors.InputError, match=problem):
      call()
