"""`launch.trained` reads the model of a run without its data."""

import json
import shutil
import tracemalloc
import types

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from launch import evaluate, export, trained
from tasks import configuration, experiment
from tests.launch import own_examples, test_evaluate
from tff_xc import errors
from tff_xc.experiment import checkpoints
from tff_xc.report import run_files

here = test_evaluate.here
rounds = test_evaluate.rounds
_GLYPHS = {**test_evaluate._GLYPHS, 'negatives': 2, 'clients_per_round': 1}


@pytest.fixture(scope='module')
def glyphs(in_process_context, tmp_path_factory):
  """A run whose checkpoints of rounds 2 to 4 are its initial state."""
  tff.framework.set_default_context(in_process_context)
  path = tmp_path_factory.mktemp('runs') / 'glyphs'
  test_evaluate.untrained(path, 'glyphs', 'fedss', **_GLYPHS)
  first = checkpoints.path_of(path, 1)
  for number in (2, 3, 4):
    shutil.copy(first, checkpoints.path_of(path, number))
  first.unlink()
  scores = ''.join(f'{number},0.5,0.1\n' for number in range(1, 5))
  (path / 'metrics.csv').write_text(f'round,loss,top1\n{scores}')
  return path


def equal(a, b):
  for one, other in zip(tf.nest.flatten(a), tf.nest.flatten(b), strict=True):
    np.testing.assert_array_equal(one, other)


@pytest.mark.slow
def test_the_weights_are_those_that_are_evaluated(here, rounds):
  """The weights include class rows with delayed momentum updates, as in FedSS."""
  given = {
    **_GLYPHS,
    'server_optimizer': 'sgd',
    'server_momentum': 0.9,
    'rounds': 4,
    'checkpoint_every': 1,
  }
  experiment.assemble(configuration.resolve('glyphs', 'fedss', given)).run('run')
  found = trained.load('run')
  assert (found.rounds, found.model.num_classes) == (4, 10)
  assert found.description.shape == (28, 28)
  assert found.scores['top1'] >= 0
  equal(found.weights, trained.restore('run').weights)
  state = np.load('run/checkpoints/round_4.npz')
  waiting = state['weights/tables/class'] != found.weights.class_table.numpy()
  assert waiting.any()
  assert trained.load('run', '3').rounds == 3


def test_rounds_that_can_be_chosen(glyphs, here):
  assert trained.load(str(glyphs), '2').rounds == 2
  for wanted, word in (('1', '2, 3, 4'), ('x', 'last, best'), ('-1', '2, 3')):
    with pytest.raises(errors.InputError, match=word):
      trained.load(str(glyphs), wanted)
  path = shutil.copytree(glyphs, here / 'run')
  table = run_files.read_metrics(path / 'metrics.csv')
  table['top1'] = np.where(table['round'] == 3, 0.9, 0.1)
  table.to_csv(path / 'metrics.csv', index=False)
  assert trained.load(str(path), 'best').rounds == 3
  table['top1'] = np.where(table['round'] == 1, 0.9, 0.1)
  table.to_csv(path / 'metrics.csv', index=False)
  with pytest.raises(errors.InputError, match='best round by top1, 1,'):
    trained.load(str(path), 'best')


def test_a_run_without_metrics_has_a_model_and_no_scores(glyphs, here):
  path = shutil.copytree(glyphs, here / 'run')
  (path / run_files.METRICS).unlink()
  found = trained.load(str(path))
  equal(found.weights, trained.load(str(glyphs)).weights)
  assert (found.rounds, found.scores) == (4, {})
  with pytest.raises(errors.InputError, match='give last'):
    trained.load(str(path), 'best')
  assert export.run(str(path), 'model', 'npz')['scores'] == {}
  assert 'top1' in evaluate.run(str(path))['metrics']


def test_damage_is_told_in_a_sentence(glyphs, here, capsys):
  path = shutil.copytree(glyphs, here / 'run')
  file = checkpoints.path_of(path, 4)
  file.write_bytes(file.read_bytes()[:-500])
  assert trained.load(str(path)).rounds == 3
  assert 'round 4 is damaged' in capsys.readouterr().err
  with pytest.raises(errors.InputError, match=r'round_4.* is damaged'):
    trained.load(str(path), '4')
  description = path / run_files.DESCRIPTION
  good = json.loads(description.read_text())
  for change, word in (
    ({'num_classes': 11}, 'another model'),
    ({'num_classes': 2**31 - 1}, 'memory'),
    ({'shape': [-1, 2]}, 'damaged'),
    ({'kind': 'sounds'}, 'damaged'),
    ({'more': 1}, 'damaged'),
  ):
    description.write_text(json.dumps(good | change))
    tracemalloc.start()
    with pytest.raises(errors.InputError, match=word) as e:
      trained.load(str(path))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100e6  # In bytes, before the file is refused.
    assert '\n' not in str(e.value)


def test_a_strangers_directory_runs_no_code(glyphs, here, monkeypatch):
  (here / 'evil_network.py').write_text("open('OWNED', 'w')")
  monkeypatch.syspath_prepend(str(here))
  path = shutil.copytree(glyphs, here / 'run')
  file = path / run_files.CONFIG
  good = json.loads(file.read_text())
  options, values = good['options'], good['hyperparameters']
  for changes, word in (
    ({'options': options | {'encoder': 'evil_network:f'}}, '--encoder=.* again'),
    ({'options': options | {'num_clients': [1]}}, '--num_clients'),
    ({'options': {}}, 'missing'),
    ({'hyperparameters': values | {'negatives': -1}}, '--negatives'),
    ({'hyperparameters': values | {'colour': 1}}, '--colour'),
  ):
    file.write_text(json.dumps(good | changes))
    with pytest.raises(errors.InputError, match=word):
      trained.load(str(path))
  assert not (here / 'OWNED').exists()


@pytest.mark.slow
def test_no_data_are_needed(here, rounds):
  own_examples.items(here)
  given = {
    'data_dir': 'items.csv',
    'hidden_dim': 4,
    'embedding_dim': 4,
    'label_column': 'item',
    'user_column': 'user',
    'rounds': 1,
  }
  made = experiment.assemble(configuration.resolve('table', 'fedavg', given))
  made.run('run')
  (here / 'items.csv').unlink()
  found = trained.load('run')
  assert found.description == made.dataset.description
  assert len(found.description.preprocessing['mean']) == 3
  assert found.class_names == list(made.dataset.class_names)


def test_the_default_round_is_the_one_that_validation_chose(monkeypatch, capsys):
  metrics = pd.DataFrame(
    {
      'round': [0, 1, 2, 3],
      'hit@10': [0.1, 0.2, 0.9, 0.5],
      'ndcg@10_validation': [0.1, 0.8, 0.4, 0.3],
      'client_top1_mean': [0.1, 0.2, 0.3, 0.4],
    }
  )

  def of(by):
    return types.SimpleNamespace(path='run', task='items', config={'best_by': by}, metrics=metrics)

  monkeypatch.setattr(checkpoints, 'kept', lambda path: [1, 2, 3])
  by_validation = of('ndcg@10_validation')
  assert trained._round(by_validation, trained.CHOSEN) == 1
  assert trained._round(of('client_top1_mean'), trained.CHOSEN) == 3
  private = of('ndcg@10_validation')
  private.config['hyperparameters'] = {'dp': 'central', 'dp_noise_multiplier': 1.0}
  assert trained._round(private, trained.CHOSEN) is None
  # A score on the test set selects a round only if the user asks for it.
  for by in ('', 'hit@10'):
    assert trained._round(of(by), trained.CHOSEN) is None
  assert trained._round(of('hit@10'), trained.BEST) == 2
  # Round 1 is best but has no checkpoint. The best round with a checkpoint is used, with a message.
  monkeypatch.setattr(checkpoints, 'kept', lambda path: [2, 3])
  assert trained._round(by_validation, trained.CHOSEN) == 2
  assert 'the model of round 2 is taken' in capsys.readouterr().err
  monkeypatch.setattr(checkpoints, 'kept', lambda path: [7])  # Round 7 was not evaluated.
  assert trained._round(by_validation, trained.CHOSEN) == 7


def test_an_additional_validation_score_chooses_and_only_loading_warns(monkeypatch, capsys):
  by = 'hit@20_validation'
  run = types.SimpleNamespace(
    path='run',
    task='items',
    config={'best_by': by, 'more_metrics': by},
    metrics=pd.DataFrame({'round': [1, 2, 3], by: [0.9, 0.5, 0.4]}),
  )
  monkeypatch.setattr(run_files, 'read_run', lambda path, needs_metrics: run)
  monkeypatch.setattr(checkpoints, 'kept', lambda path: [1, 2, 3])
  assert trained.round_of('run', trained.CHOSEN) == 1
  monkeypatch.setattr(checkpoints, 'kept', lambda path: [2, 3])
  assert trained.round_of('run', trained.CHOSEN) == 2
  assert not capsys.readouterr().err
  trained._round(run, trained.CHOSEN)
  assert capsys.readouterr().err.count('warning') == 1
