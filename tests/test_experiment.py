"""The loop on a process made of plain numbers: fast, and every case reachable."""

import collections
import csv
import json
import types

import numpy as np
import pytest

from datasets import errors
from tests import tiny
from tff_xc import cohort
from tff_xc import experiment
from tff_xc import run_directory
from tff_xc.measure import communication
from tff_xc.round import merge
from tff_xc.round import randomness
from tff_xc.round import request
from tff_xc.runtime import client_error

CONFIG = {'task': 't', 'algorithm': 'a', 'seed': 0, 'rounds': 10, 'lr': 0.1}
MESSAGES = experiment.Messages(
  communication.MessageSizes(encoder_bytes=400, row_bytes=16),
  requests_all=False,
  num_classes=50,
  row_dim=4,
)
State = collections.namedtuple('State', 'weights round_number')


class Doubling:
  """A process whose weights double, and that can be interrupted."""

  def __init__(self, interrupt_at=None):
    self._interrupt_at = interrupt_at

  def initialize(self):
    return State(np.float32(1.0), np.int32(0))

  def get_model_weights(self, state):
    return state.weights

  def next(self, state, examples):
    del examples
    if state.round_number == self._interrupt_at:
      raise KeyboardInterrupt
    metrics = {
      'loss': np.float32(1 / state.weights),
      'class_rows': 10.0,
      'class_rows_largest': 12.0,
      'clients_dropped': 0.0,
    }
    round_number = np.int32(state.round_number + 1)
    after = State(np.float32(state.weights * 2), round_number)
    return types.SimpleNamespace(state=after, metrics=metrics)


def score(weights):
  return {'top1': 1 - 1 / float(weights)}


def run(path, rounds=10, process=None, evaluate=score):
  return experiment.run(
    process=process or Doubling(),
    cohorts=lambda r: cohort.Cohort([], 1, ('reader', 'writer')),
    evaluate=evaluate,
    metrics=('top1',),
    messages=MESSAGES,
    schedule=experiment.Schedule(rounds, eval_every=4, checkpoint_every=3),
    directory=run_directory.RunDirectory(path, {**CONFIG, 'rounds': rounds}),
  )


def rows(path):
  with open(path / 'metrics.csv') as file:
    return [
      {k: v for k, v in row.items() if k != 'seconds'}
      for row in csv.DictReader(file)
    ]


def test_the_summary_has_final_best_bytes_and_totals(tmp_path):
  summary = run(tmp_path / 'run')
  assert summary['final'] == {'top1': 1 - 2.0**-10}
  assert summary['best'] == summary['final']
  assert summary['rounds'] == 10
  assert summary['bytes_down_per_client_round'] == 400 + 10 * 16
  assert summary['bytes_up_per_client_round'] == 400 + 10 * 16 + 4 + 80
  assert summary['clients_skipped_total'] == 10
  full = 2 * (400 + 50 * 16) + 4
  saved = 1 - (2 * (400 + 10 * 16) + 4 + 80) / full
  assert summary['bytes_saving_vs_fullsoftmax'] == pytest.approx(saved)
  assert json.loads((tmp_path / 'run' / 'summary.json').read_text()) == summary
  assert rows(tmp_path / 'run')[0]['client_parameters_peak'] == '148.0'


def test_an_interrupt_saves_and_the_same_call_goes_on(tmp_path, capsys):
  run(tmp_path / 'whole')
  with pytest.raises(KeyboardInterrupt):
    run(tmp_path / 'cut', process=Doubling(interrupt_at=7))
  assert 'stopped after round 7' in capsys.readouterr().err
  # Round 7 is no multiple of 3: the interrupt itself wrote the checkpoint.
  run(tmp_path / 'cut', process=Doubling(interrupt_at=5))
  assert rows(tmp_path / 'cut') == rows(tmp_path / 'whole')


def test_an_interrupt_while_evaluating_loses_no_row(tmp_path):
  def interrupted(weights):
    raise KeyboardInterrupt

  run(tmp_path / 'whole')
  with pytest.raises(KeyboardInterrupt):
    run(tmp_path / 'cut', evaluate=interrupted)
  run(tmp_path / 'cut')
  assert rows(tmp_path / 'cut') == rows(tmp_path / 'whole')


def test_a_state_that_a_round_used_up_is_not_saved(
  tmp_path, capsys, monkeypatch
):
  def used_up(state):
    raise ValueError('given up')

  run(tmp_path / 'whole')
  with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
    patched.setattr(experiment.runtimes, 'keep', used_up)
    run(tmp_path / 'cut', process=Doubling(interrupt_at=7))
  assert 'goes on from the checkpoint before' in capsys.readouterr().err
  run(tmp_path / 'cut', process=Doubling(interrupt_at=1))  # It resumes at 6.
  assert rows(tmp_path / 'cut') == rows(tmp_path / 'whole')


def test_a_failing_client_is_named_and_the_run_goes_on_after_it(tmp_path):
  class Failing(Doubling):
    def next(self, state, examples):
      if state.round_number == 5:
        raise client_error.ClientError(1, 2, ValueError('no memory'))
      return super().next(state, examples)

  run(tmp_path / 'whole')
  with pytest.raises(errors.InputError, match="'writer' failed in round 6: no"):
    run(tmp_path / 'cut', process=Failing())
  run(tmp_path / 'cut', process=Doubling(interrupt_at=4))
  assert rows(tmp_path / 'cut') == rows(tmp_path / 'whole')


def test_more_rounds_go_on_and_fewer_are_refused(tmp_path):
  run(tmp_path / 'long', rounds=12)
  run(tmp_path / 'grown', rounds=8)
  run(tmp_path / 'grown', rounds=12)
  assert rows(tmp_path / 'grown') == rows(tmp_path / 'long')
  with pytest.raises(errors.InputError, match='12 rounds; give at least'):
    run(tmp_path / 'grown', rounds=8)


def test_all_checkpoints_damaged_starts_again(tmp_path, capsys):
  path = tmp_path / 'run'
  run(path)
  for file in (path / 'checkpoints').rglob('*'):
    if file.is_file():
      file.write_bytes(b'')
  before = rows(path)
  run(path)
  assert capsys.readouterr().err.count('is damaged') == 3
  assert rows(path) == before


def test_a_checkpoint_of_another_shape_counts_as_damaged(tmp_path, capsys):
  saved = run_directory.Checkpoints(tmp_path)
  saved.save([np.zeros(3)], 4)
  state, done = run_directory.Checkpoints(tmp_path).load([np.zeros(2)])
  assert done == 0
  np.testing.assert_array_equal(state[0], np.zeros(2))
  assert 'round 4 is damaged' in capsys.readouterr().err


@pytest.mark.parametrize(
  ('change', 'message'),
  [
    ({'lr': 0.2}, 'lr was 0.1 and is 0.2'),
    ({'extra': 1}, 'extra was None and is 1'),
  ],
)
def test_another_configuration_is_refused(tmp_path, change, message):
  run_directory.RunDirectory(tmp_path / 'run', CONFIG)
  with pytest.raises(errors.InputError, match=message):
    run_directory.check_config(tmp_path / 'run', {**CONFIG, **change})


def test_a_directory_in_use_a_file_and_a_damaged_config_are_refused(tmp_path):
  held = run_directory.RunDirectory(tmp_path / 'run', CONFIG)
  with pytest.raises(errors.InputError, match='another process is running'):
    run_directory.RunDirectory(held.path, CONFIG)
  (tmp_path / 'file').write_text('')
  with pytest.raises(errors.InputError, match='is a file'):
    run_directory.check_config(tmp_path / 'file', CONFIG)
  (held.path / 'config.json').write_text('{')
  with pytest.raises(errors.InputError, match=r'config.json is damaged'):
    run_directory.check_config(held.path, CONFIG)


def test_bytes_are_those_of_the_tensors_that_cross():
  """The formulas against the tensors of one client, request to update."""
  model = tiny.model(12)
  client = tiny.cohort([[0, 0, 3, 5]])[0]
  seed = randomness.client_seed(
    np.array([0, 0], np.int32), client.client_id, randomness.Purpose.NEGATIVES
  )
  held = request.OwnAndSampled(12, 6, 4).held_classes(client.y, seed)
  weights = model.init(np.array([0, 0], np.int32))
  asked = held.ids.numpy()[held.mask.numpy()]
  received = [*weights.encoder.values(), weights.class_table.numpy()[asked]]
  update = merge.row_update(
    held, np.zeros([held.ids.shape[0], model.row_dim], np.float32), 4.0
  )
  sent = [asked, *weights.encoder.values(), *update[:2], np.float32(4.0)]
  size = lambda tensors: sum(np.asarray(t).nbytes for t in tensors)
  messages = experiment.Messages(
    communication.MessageSizes(model.encoder_bytes(), 4 * model.row_dim),
    requests_all=False,
    num_classes=12,
    row_dim=model.row_dim,
  )
  assert len(asked) == 7
  columns = messages.of_round(7, 7)
  assert columns['bytes_down_per_client'] == size(received)
  assert columns['bytes_up_per_client'] == size(sent)


def test_full_softmax_sends_no_ids_and_centralised_training_nothing():
  full = experiment.Messages(MESSAGES.sizes, True, 50, 4)
  assert full.of_round(50, 50)['bytes_up_per_client'] == 400 + 50 * 16 + 4
  assert full.saving(2 * (400 + 50 * 16) + 4) == 0
  nobody = experiment.Messages(MESSAGES.sizes, True, 50, 4, crosses=False)
  assert nobody.of_round(50, 50)['bytes_down_per_client'] == 0
