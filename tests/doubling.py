"""Runs a learning process of plain numbers, which is fast enough to test many cases."""

import collections
import csv
import types

import numpy as np
import tensorflow as tf

from tff_xc.experiment import client_states, progress, run_directory, training
from tff_xc.measure import communication, targets
from tff_xc.round import cohort, examples as examples_lib

CONFIG = {'task': 't', 'algorithm': 'a', 'seed': 0, 'rounds': 10, 'lr': 0.1}
MESSAGES = communication.Messages(
  encoder_bytes=400,
  frozen_bytes=0,
  full_bytes=400 + 50 * 16,
  down=400,
  up=404,
  tables={'class': communication.TableSizes(16, down=16, up=24)},
)
State = collections.namedtuple('State', 'weights round_number')


class Doubling:
  """A process that doubles its weights in each round. A test can interrupt it."""

  def __init__(self, interrupt_at=None):
    self._interrupt_at = interrupt_at

  def initialize(self):
    return State(np.float32(1.0), np.int32(0))

  def get_model_weights(self, state):
    return state.weights

  def next(self, state, examples):
    if state.round_number == self._interrupt_at:
      raise KeyboardInterrupt
    metrics = {
      'loss': np.float32(1 / state.weights),
      'class_rows': 10.0,
      'class_rows_largest': 12.0,
      'clients': 2.0,
      'clients_dropped': 0.0,
    }
    round_number = np.int32(state.round_number + 1)
    after = State(np.float32(state.weights * 2), round_number)
    return types.SimpleNamespace(state=after, metrics=metrics)


class At(Doubling):
  """A doubling process that calls a function before one of its rounds."""

  def __init__(self, rounds_done, function):
    super().__init__()
    self._at, self._function = rounds_done, function

  def next(self, state, examples):
    if state.round_number == self._at:
      self._function()
    return super().next(state, examples)


class Keeping(Doubling):
  """A doubling process whose clients keep the sum of the weights that they received."""

  spec = tf.TensorSpec([2000])  # A client's state fills two blocks of a file.

  def next(self, state, examples):
    examples = list(examples)
    output = super().next(state, examples)
    sums = np.stack([c.state.value + state.weights for c in examples])
    output.metrics['loss'] = sums.sum()
    ids = np.array([c.client_id for c in examples])
    output.metrics[examples_lib.NAME] = examples_lib.KeptStates(ids, sums)
    return output


def _cohort(round_number):
  """Returns two of five clients; which two depends on the round."""
  ids = round_number % 3, 3 + round_number % 2
  values = [examples_lib.ClientExamples((), (), np.int64(i), ()) for i in ids]
  return cohort.Cohort(values, 1, ('reader', 'writer'))


def score(weights):
  return {'top1': 1 - 1 / float(weights)}


def run(
  path,
  rounds=10,
  process=None,
  evaluate=score,
  warnings=(),
  target='',
  best=targets.NO_BEST,
  checkpoint_every=3,
):
  process = process or Doubling()
  spec = getattr(process, 'spec', None)
  return training.run(
    process=process,
    cohorts=_cohort,
    evaluate=evaluate,
    metrics=('top1',),
    messages=MESSAGES,
    schedule=progress.Schedule(rounds, 4, checkpoint_every),
    directory=run_directory.RunDirectory(path, {**CONFIG, 'rounds': rounds, 'target': target}),
    targets=targets.parse(target),
    best=best,
    warnings=warnings,
    client_states=spec and client_states.ClientStates(spec, path),
  )


def rows(path):
  with open(path / 'metrics.csv') as file:
    return [{k: v for k, v in row.items() if k != 'seconds'} for row in csv.DictReader(file)]


def assert_same_arrays(path, whole):
  """Checks that a run has the same checkpoints and client states as another run."""
  for file in whole.rglob('*.npz'):
    with np.load(file) as a, np.load(path / file.relative_to(whole)) as b:
      assert a.files == b.files
      for name in a.files:
        np.testing.assert_array_equal(a[name], b[name], f'{file} {name}')
