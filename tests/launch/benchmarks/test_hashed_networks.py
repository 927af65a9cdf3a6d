"""`launch.benchmark hashed_networks`: its contenders train the same networks."""

import numpy as np
import pytest
import tensorflow as tf

from launch.benchmarks import catalog
from launch.benchmarks import contender
from launch.benchmarks import harness
from launch.benchmarks import hashed_networks
from tff_xc.runtime import registry

NETWORKS = catalog.get('hashed_networks')
SMALL = NETWORKS.settings(**NETWORKS.small)


@pytest.fixture(autouse=True)
def as_it_is(monkeypatch, in_process):
  """Leaves this process's runtime, which is in process, and its threads."""
  monkeypatch.setattr(registry, 'install', lambda name, **options: None)
  for kind in ('intra', 'inter'):
    name = f'set_{kind}_op_parallelism_threads'
    monkeypatch.setattr(tf.config.threading, name, lambda n: None)


def built(name):
  made = NETWORKS.build(name, SMALL)
  made.run()
  return made, made.report()['check']


def weights_of(rounds):
  return rounds._process.get_model_weights(rounds._state)


def disagreeing(checks):
  first = {name: contender.Reply(1.0, check) for name, check in checks.items()}
  [group] = NETWORKS.groups(list(first))
  return set(harness.disagreeing(first, group, NETWORKS.tolerances))


@pytest.mark.slow
def test_networks_as_one_are_the_networks_one_after_the_other():
  (ours, check), (looped, wanted) = built('ours'), built('looped')
  assert disagreeing({'looped': wanted, 'ours': check}) == set()
  assert check['update_norm'] > 0.01
  start = hashed_networks.initial_weights(SMALL)
  for r, alone in enumerate(looped._networks):
    found, before = (
      tf.nest.flatten(hashed_networks.network(weights, SMALL, r))
      for weights in (weights_of(ours), start)
    )
    for a, b, c in zip(
      found, tf.nest.flatten(weights_of(alone)), before, strict=True
    ):
      np.testing.assert_allclose(a, b, atol=1e-5)
      assert np.abs(np.subtract(a, c)).max() > 1e-4  # Adam's steps are 1e-3.
  wrong = {'loss': wanted['loss'] * 1.001, 'update_norm': 0.0}
  assert disagreeing({'looped': wanted, 'ours': wrong}) == {'ours'}


def test_the_peers_arrays_are_the_same_networks(tmp_path):
  path = str(tmp_path / 'arrays.npz')
  hashed_networks.write_arrays(SMALL, path)
  with np.load(path) as file:
    arrays = dict(file)
  sets = hashed_networks.make_sets(SMALL)
  assert (arrays['x'] > 0).sum(axis=1).tolist() == [6] * 7
  np.testing.assert_allclose(arrays['x'].sum(1), sets.values.sum(1), rtol=1e-6)
  assert arrays['y'].shape == (3, 7, 5)
  start = hashed_networks.initial_weights(SMALL)
  hidden = arrays['x'] @ start.encoder['hidden0/kernel'].numpy()
  for r in range(SMALL.tables):
    kernel = arrays[f'{r}/0.weight'].T
    np.testing.assert_allclose(
      arrays['x'] @ kernel, hidden[:, 4 * r : 4 * (r + 1)], atol=1e-6
    )
    assert arrays[f'{r}/4.weight'].shape == (5, 4)
    buckets = hashed_networks.bucket_sets(SMALL, sets.labels)[r]
    for targets, own in zip(arrays['y'][r], buckets, strict=True):
      assert np.flatnonzero(targets).tolist() == own.tolist()
