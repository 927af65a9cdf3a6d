"""Training from Python: which arguments cause errors, and which runs resume."""

import asyncio
import dataclasses
import functools

import numpy as np
import pytest
import tensorflow as tf

from tests import small_data
from tff_xc import errors
from tff_xc.algorithms import fedss
from tff_xc.data import client_data
from tff_xc.experiment import training
from tff_xc.measure import catalog
from tff_xc.report import run_files
from tff_xc.round import cohort, losses, parts


@pytest.fixture(scope='module')
def made():
  dataset, model = small_data.images()
  algorithm = fedss.FedSS.made(model=model, max_positives=4, negatives=2)
  sampling = cohort.UniformClients(2)
  return dataclasses.replace(algorithm, sampling=sampling), dataset


def train(made, path, rounds=1, metrics=('train_top1',), target='', eval_every=1, **changes):
  algorithm, dataset = made
  algorithm = dataclasses.replace(algorithm, **changes)
  return training.train(
    algorithm,
    dataset,
    path,
    metrics=metrics,
    rounds=rounds,
    target=target,
    eval_every=eval_every,
    config={'note': 'does not describe the algorithm'},
  )


def test_a_description_has_what_functions_and_numbers_hold():
  class Scale:
    def __init__(self, by):
      self.by = by

    def times(self, x):
      return self.by * x

  def of(scale):
    return functools.partial(np.multiply, scale), np.float32(scale), Scale(scale).times

  for one, other in zip(of(0.1), of(0.2), strict=True):
    assert training.describe(one) != training.describe(other)


@pytest.mark.slow
def test_a_directory_is_free_again_while_a_traceback_lives(made, in_process, built_once, tmp_path):
  def fails(*_):
    raise KeyboardInterrupt

  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(training, 'draw_curves', fails)
    with pytest.raises(KeyboardInterrupt) as held:
      train(made, tmp_path / 'run')
  assert train(made, tmp_path / 'run', 2)['rounds'] == 2
  del held


def test_the_description_of_an_algorithm_hides_its_secret(made):
  private = fedss.FedSS.made(
    model=made[0].model, max_positives=4, negatives=2, request_randomness='private'
  )
  told = training.describe(private.tables)
  assert 'Secret' in told
  assert not any(str(number) in told for number in private.tables[0].request.secret)


@pytest.mark.parametrize('schedule', ['sticky', 'partial'])
def test_lasting_negatives_of_a_lost_secret_do_not_go_on(made, tmp_path, monkeypatch, schedule):
  model, dataset = made[0].model, made[1]
  monkeypatch.setattr(training.checkpoints, 'kept', lambda run_dir: [0, 1])
  for randomness, word in (('private', 'cannot resume'), ('reproducible', 'no sampling')):
    algorithm = fedss.FedSS.made(
      model=model,
      max_positives=4,
      negatives=2,
      negatives_schedule=schedule,
      request_randomness=randomness,
      sampling=cohort.UniformClients(2) if randomness == 'private' else None,
    )
    with pytest.raises((errors.InputError, ValueError), match=word):
      train((algorithm, dataset), tmp_path / 'run')


def test_a_part_has_no_metric_of_a_score(made, tmp_path):
  class Mine(parts.Part):
    name = 'mine'
    metrics = ('train_top1',)

  with pytest.raises(ValueError, match='rename'):
    train(made, tmp_path / 'run', parts=(Mine(),))


@pytest.mark.slow
def test_another_algorithm_is_refused_in_the_same_directory(made, in_process, built_once, tmp_path):
  train(made, tmp_path / 'run')
  for changes, told in (
    ({'loss': losses.HeldSoftmax(8)}, "loss was HeldSoftmax.*'negatives'"),
    ({'weighting': 'uniform'}, "'uniform'"),
    ({'sampling': cohort.UniformClients(3)}, 'clients_per_round=2.*=3'),
    ({'metrics': ('top1',)}, 'metrics was train_top1'),
  ):
    with pytest.raises(errors.InputError, match=told):
      train(made, tmp_path / 'run', 2, **changes)
  summary = train(made, tmp_path / 'run', 2)
  assert summary['rounds'] == 2
  # The data set has six clients with ten examples each.
  train_data = made[1].train
  shares = np.array(
    [np.bincount(train_data.labels(name), minlength=8) / 10 for name in train_data.client_ids]
  )
  apart = np.abs(shares - shares.mean(axis=0)).sum(axis=1)
  assert summary['emd'] == pytest.approx(apart.mean())


@pytest.mark.slow
@pytest.mark.pictures
def test_it_trains_while_a_loop_runs_as_in_a_notebook(made, in_process, built_once, tmp_path):
  async def cell():
    return train(made, tmp_path / 'run')

  assert asyncio.run(cell())['rounds'] == 1
  assert (tmp_path / 'run' / 'curves.png').stat().st_size > 0
  assert len((tmp_path / 'run' / 'metrics.csv').read_text().splitlines()) == 3


@pytest.mark.parametrize(
  ('changes', 'message'),
  [
    ({'sampling': None}, 'no sampling'),
    ({'rounds': 0}, 'at least one round'),
    ({'eval_every': 0}, 'at least one round'),
    ({'metrics': ()}, 'one metric'),
    ({'metrics': ('map@10',)}, 'map@10 needs retrieval'),
    ({'metrics': ('top2',)}, 'there is no metric top2'),
    ({'target': 'top1:0.5'}, 'not measured'),
    ({'label_sets': True}, 'of the model'),
    ({'num_classes': 9}, 'the model has'),
  ],
)
def test_what_would_fail_later_is_refused_at_once(made, in_process, tmp_path, changes, message):
  if {'label_sets', 'num_classes'} & set(changes):
    changes = {'model': dataclasses.replace(made[0].model, **changes)}
  with pytest.raises((ValueError, errors.InputError), match=message):
    train(made, tmp_path / 'run', **changes)
  assert not (tmp_path / 'run').exists()


def test_without_a_source_workers_read_no_data(made, tmp_path, monkeypatch):
  offered = []

  def offer(source, fingerprint):
    offered.append((source, bool(fingerprint)))
    raise KeyboardInterrupt  # Stop before training.

  monkeypatch.setattr(training.runtimes, 'offer_data', offer)
  with pytest.raises(KeyboardInterrupt):
    train(made, tmp_path / 'run')
  assert offered == [(None, True)]


@pytest.mark.slow
def test_single_clients_are_scored_in_columns_of_their_own(made, in_process, built_once, tmp_path):
  algorithm, dataset = made
  held_out = dataset.train.partition.where(np.arange(60) % 10 < 3)
  more = {'metrics': ('train_top1',), 'seed': 5, 'eval_every': 1}
  dataset = dataclasses.replace(dataset, held_out=held_out)

  def run(path, rounds, count):
    given = {**more, 'rounds': rounds, 'evaluate_clients': count}
    return training.train(algorithm, dataset, path, **given)

  whole = run(tmp_path / 'run', 3, 2)
  names = catalog.OF_CLIENTS
  assert {'train_top1', *names} == set(whole['final'])
  values = run_files.read_run(tmp_path / 'run').metrics[list(names)]
  assert values.notna().all(axis=None)
  scores = values['client_top1_mean'] * 6  # Two clients have three examples each.
  np.testing.assert_allclose(scores, scores.round())
  run(tmp_path / 'parts', 1, 2)  # The resumed run uses the same clients.
  assert run(tmp_path / 'parts', 3, 2)['final'] == whole['final']
  with pytest.raises(errors.InputError, match='evaluate_clients was 2'):
    run(tmp_path / 'parts', 3, 3)


def test_other_examples_than_the_encoders_are_refused_at_once(made, tmp_path):
  """The error comes before building the process, which takes time."""
  algorithm, dataset = made
  pool = dataset.train.pool
  spec = tf.TensorSpec(pool.spec.shape, tf.float32)
  train_data = client_data.PartitionedClientData(
    dataclasses.replace(pool, spec=spec), dataset.train.partition
  )
  other = dataclasses.replace(dataset, train=train_data)
  with pytest.raises(ValueError, match='float32'):
    train((algorithm, other), tmp_path / 'run')
  assert not (tmp_path / 'run').exists()
