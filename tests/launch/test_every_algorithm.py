"""Runs every algorithm on every kind of task that it supports, for two rounds.

A new entry in a registry is tested without more code.
"""

import json

import numpy as np
import pytest

from launch import train
from tasks import registry as tasks
from tests.launch import flag_values
from tff_xc import errors
from tff_xc.algorithms import registry as algorithms
from tff_xc.runtime import registry as runtimes

_TINY = {
  'embedding_dim': 4,
  'feature_dim': 4,
  'hidden_dim': 4,
  'batch_size': 4,
  'negatives': 3,
  'spreadout_neighbors': 2,
}


def _images(root):
  """Writes a user's own images of 8 classes."""
  random, count = np.random.default_rng(0), np.arange

  def images(k):
    return random.integers(0, 256, (k, 16, 16), dtype=np.uint8)

  np.savez(
    root / 'mine.npz',
    x=images(40),
    y=count(40) % 8,
    client=count(40) // 10,
    test_x=images(8),
    test_y=count(8),
    retrieval_x=images(6),
    retrieval_y=count(6) // 2,
  )
  return root / 'mine.npz'


_WORDS = {'num_classes': 50, 'num_features': 100, 'batch_size': 99}
# Other settings for each kind of task.
_KINDS = {'images': {}, 'sparse-words': _WORDS, 'sparse-words-sets': _WORDS}


@pytest.fixture
def launched(in_process, tmp_path, monkeypatch):
  """Returns a function (task, algorithm, changes) -> (summary, run directory).

  It trains with tiny sizes, as `launch.train` does with flags.
  """
  monkeypatch.setattr(runtimes, 'install', lambda *_, **__: in_process)

  def launch(task, algorithm, **changes):
    names = {*algorithms.get(algorithm).names, *tasks.get(task).option_values()}
    given = {
      'task': task,
      'algorithm': algorithm,
      **{k: v for k, v in _TINY.items() if k in names},
      'rounds': 2,
      'data_dir': _images(tmp_path),
    }
    if algorithms.get(algorithm).has_clients:
      given['clients_per_round'] = 3
    given |= _KINDS[task] | changes
    if algorithm == 'fedvc' and 'batch_size' in given:
      given['virtual_client_size'] = 2 * given['batch_size']
    config, _ = flag_values.resolved([f'--{k}={v}' for k, v in given.items()])
    return train.run(config, str(tmp_path / 'run')), tmp_path / 'run'

  return launch


def _combinations():
  """Yields all combinations. Those that another combination nearly covers are slow."""
  for algorithm in algorithms.ALGORITHMS:
    for task in _KINDS:
      if not set(algorithms.get(algorithm).needs) & set(tasks.get(task).lacks):
        marks = [pytest.mark.slow] * ((task, algorithm) != ('images', 'fedss'))
        yield pytest.param(task, algorithm, marks=marks)


@pytest.mark.parametrize(('task', 'algorithm'), _combinations())
def test_two_rounds(task, algorithm, launched, capsys):
  summary, run_dir = launched(task, algorithm)
  assert summary['rounds'] == 2
  assert summary['clients_dropped_total'] == 0
  scores = summary['final'].values()
  # FedMLH does not have a row per class, so it has no distances of rows.
  assert len(scores) >= (1 if algorithm == 'fedmlh' else 3)
  assert np.isfinite(list(scores)).all()
  assert json.loads((run_dir / 'summary.json').read_text()) == summary
  assert algorithm in capsys.readouterr().out
  crosses = algorithms.get(algorithm).has_clients
  assert (summary['bytes_down_per_client_round'] > 0) == crosses


@pytest.mark.parametrize(
  ('changes', 'expected'),
  [
    ({'data_dir': '/nowhere.npz'}, 'nowhere'),
    ({'clients_per_round': 1000}, 'give --clients_per_round=4 or fewer'),
  ],
)
def test_bad_input_found_with_the_data_leaves_nothing(changes, expected, launched, tmp_path):
  with pytest.raises(errors.InputError, match=expected):
    launched('images', 'fedss', **changes)
  assert not (tmp_path / 'run').exists()
