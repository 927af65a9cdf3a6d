"""What the peers, programs of other environments, are given."""

import numpy as np
import pytest

from launch.benchmarks import bottleneck
from launch.benchmarks import catalog
from launch.benchmarks import femnist_round
from launch.benchmarks import lstm_step
from launch.benchmarks import starting
from launch.benchmarks.peers import inputs

_SMALL = {'clients': 2, 'examples': 70, 'embedding_dim': 3, 'batch_size': 8}


def test_round_writes_its_clients_and_weights(tmp_path):
  settings = femnist_round.Settings(**_SMALL)
  path = str(tmp_path / 'arrays.npz')
  femnist_round.write_arrays(settings, path)
  clients, weights = femnist_round.make_arrays(settings)
  given = inputs.load(path)
  assert set(given) == {*weights, 'x', 'y', 'batch_size', 'learning_rate'}
  np.testing.assert_array_equal(given['x'][1], clients[1].x)
  np.testing.assert_array_equal(given['class/kernel'], weights['class/kernel'])


def test_one_file_serves_every_number_of_classes(tmp_path):
  settings = bottleneck.Settings(**_SMALL, num_classes=(62, 5000))
  path = str(tmp_path / 'arrays.npz')
  bottleneck.write_arrays(settings, path)
  few, many = (inputs.load(path, n) for n in ('62', '5000'))
  assert (
    set(few)
    == set(many)
    == {
      *femnist_round.shapes(3, 62),
      *('x', 'y', 'batch_size', 'learning_rate', 'negatives'),
    }
  )
  assert [few['class/kernel'].shape, many['class/bias'].shape] == [
    (3, 62),
    (5000,),
  ]
  assert [int(given['negatives']) for given in (few, many)] == [61, 1000]
  for n, given in ((62, few), (5000, many)):
    clients = bottleneck.make_clients(settings, n)
    weights = bottleneck.make_weights(settings, n)
    for k, client in enumerate(clients):
      np.testing.assert_array_equal(given['x'][k], client.x)
      np.testing.assert_array_equal(given['y'][k], client.y)
    for name, value in weights.items():
      np.testing.assert_array_equal(given[name], value)


def test_the_lstm_has_the_published_number_of_parameters(tmp_path):
  path = str(tmp_path / 'arrays.npz')
  lstm_step.write_arrays(lstm_step.Settings(steps=2), path)
  given = inputs.load(path)
  shapes = [given[name].shape for name in ('x', 'y')]
  assert shapes == [(1, 128, 80), (1, 128)]
  rest = ('x', 'y', 'batch_size', 'learning_rate')
  sizes = [value.size for name, value in given.items() if name not in rest]
  assert sum(sizes) == 819_920


def test_a_client_of_the_bottleneck_has_few_classes_of_its_own():
  settings = bottleneck.Settings(clients=2)
  few = bottleneck.make_clients(settings, 62)
  many = bottleneck.make_clients(settings, 10**6)
  own = [set(client.y) for client in many]
  assert [len(classes) for classes in own] == [
    len(set(client.y)) for client in few
  ]
  assert not own[0] & own[1]
  assert max(own[0]) > 62
  # Images do not depend on n.
  np.testing.assert_array_equal(few[1].x, many[1].x)


def test_a_peer_runs_at_every_size_if_its_interpreter_is_given():
  benchmark = catalog.get('bottleneck')
  names = benchmark.peers(bottleneck.Settings(num_classes=(5, 9)))
  made = starting.peer_contenders(names, {'pfl_torch': 'python'}, 'a.npz', 1.0)
  assert list(made) == ['pfl_torch@5', 'pfl_torch@9']
  command = made['pfl_torch@9']._command
  assert command[0] == 'python'
  assert command[1].endswith('/peers/pfl_torch.py')
  assert command[2:] == ['a.npz', '9']
  made = starting.peer_contenders(['pfl_tf'], {'pfl_tf': 'p'}, 'a.npz', 1.0)
  assert made['pfl_tf']._command[2:] == ['a.npz', '']


def test_distance_is_the_norm_of_all_differences():
  before = [np.zeros([3, 2]), np.float32([1])]
  after = [np.full([3, 2], 2.0), np.float32([6])]
  assert inputs.distance(after, before) == pytest.approx(7.0)
  with pytest.raises(ValueError, match='other shapes'):
    inputs.distance(after[:1], before)
