"""Scores of single clients, with the global model and with personal models."""

import json

import numpy as np
import pandas as pd
import pytest

from launch import evaluate, trained
from tests.launch import test_evaluate
from tff_xc.experiment import personalization
from tff_xc.round import cohort, personal, randomness

here = test_evaluate.here
_GLYPHS = {
  **test_evaluate._GLYPHS,
  'num_clients': 10,
  'examples_per_client': 12,
  'embedding_dim': 16,
  'client_test_fraction': 0.25,
  'unseen_clients': 0.2,
  'negatives': 3,
}


def scored(path, how=None):
  """Returns (content of evaluation.json, clients.csv)."""
  evaluate.run(str(path), None, None, True, how)
  frame = pd.read_csv(path / 'clients.csv', dtype={'client': str})
  return json.loads((path / 'evaluation.json').read_text()), frame


@pytest.mark.slow
def test_before_and_after_of_trained_and_unseen_clients(here, capsys, monkeypatch):
  monkeypatch.setenv('COLUMNS', '80')
  path = test_evaluate.untrained(here / 'run', 'glyphs', 'fedss', **_GLYPHS)
  result, frame = scored(path)
  assert result['clients']['trained']['clients'] == 8
  assert result['clients']['unseen']['clients'] == 2
  found = trained.restore(str(path))
  dataset = found.dataset
  for part, own in (('trained', dataset), ('unseen', dataset.unseen)):
    rows = frame[frame['part'] == part]
    for index, row in enumerate(rows.itertuples()):
      numbers = own.held_out.of_client(index)
      pool = dataset.train.pool
      classes = found.evaluator.predict(found.weights, pool, numbers)
      assert row.top1 == np.mean(classes == pool.labels[numbers])
      assert (row.training_examples, row.test_examples) == (9, 3)
    mean = result['clients'][part]['top1_mean']
    assert mean == pytest.approx(rows['top1'].mean())
  capsys.readouterr()
  result, after = scored(path, personalization.Personalization(60, learning_rate=0.3))
  table = [line for line in capsys.readouterr().out.splitlines() if '/' not in line]
  assert max(map(len, table)) <= 80
  assert any(line.startswith('unseen ') for line in table)
  assert after['top1'].equals(frame['top1'])
  mean = after.groupby('part')[['top1', 'top1_personalized']].mean()
  # A model quickly learns three classes.
  assert (mean['top1_personalized'] > mean['top1'] + 0.1).all()
  assert (path / 'clients.png').exists()
  # Compute the last trained client and the last unseen client directly.
  adapt = personal.build(found.algorithm, 60, learning_rate=0.3)
  seed = randomness.round_seed(found.state.seed, 0)
  for number, index, own in ((7, 7, dataset), (9, 1, dataset.unseen)):
    train = own.train if own is not dataset else dataset.train.partition
    value = cohort.client_value(dataset.train, train.of_client(index), number)
    model, held = adapt(found.weights, value, seed), own.held_out
    assert found.evaluator.of_clients(model, held)[index] == after['top1_personalized'][number]

  def again(how, threads):
    return evaluate.score_clients(found._replace(client_threads=threads), how)['top1_personalized']

  for threads in (1, 3):
    scores = again(personalization.Personalization(60, learning_rate=0.3), threads)
    assert scores.tolist() == after['top1_personalized'].tolist()
  for how in (
    personalization.Personalization(0),
    personalization.Personalization(5, learning_rate=0.0),
  ):
    assert again(how, 2).tolist() == frame['top1'].tolist()


def test_personal_models_without_the_files_of_the_run_are_told(here, capsys):
  (here / 'p.csv').write_text('class,probability\n' + ''.join(f'{c},1\n' for c in range(10)))
  path = test_evaluate.untrained(
    here / 'run', 'glyphs', 'fedss', **_GLYPHS, importance_weights=str(here / 'p.csv')
  )
  scored(path)
  assert 'from a file' not in capsys.readouterr().err
  scored(path, personalization.Personalization(1))
  assert 'from a file' in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(
  ('kind', 'more', 'part'),
  [
    ('hashed labels', {}, 'rows'),
    ('label sets', {'clients_per_round': 2}, 'all'),
    # The few examples of a round have fewer features than all examples of a client.
    ('sparse text', {'examples_per_round': 1}, 'all'),
    ('without clients', {}, 'head'),
  ],
)
def test_every_kind_of_run(kind, more, part, here):
  task, algorithm, made = test_evaluate._KINDS[kind]
  given = {**made(here), **more, 'client_test_fraction': 0.5}
  path = test_evaluate.untrained(here / 'run', task, algorithm, **given)
  _, frame = scored(path, personalization.Personalization(3, part))
  some = frame[frame['test_examples'] > 0]
  assert len(some)
  assert some['top1_personalized'].between(0, 1).all()
