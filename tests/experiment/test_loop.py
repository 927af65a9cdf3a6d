"""Tests the training loop on a process of plain numbers, which is fast."""

import contextlib
import gc
import json
import math
import os
import shutil
import signal

import numpy as np
import pytest

from tests import doubling
from tff_xc import errors, interrupts
from tff_xc.experiment import checkpoints, run_directory, same_run, training
from tff_xc.measure import targets
from tff_xc.report import run_files
from tff_xc.runtime import client_error


def test_the_initial_model_is_evaluated_once_as_round_0(tmp_path, capsys):
  evaluated = []

  def score(weights):
    evaluated.append(float(weights))
    # The initial model has the best score, and means leave it out.
    return {'top1': 1 / float(weights)}

  path = tmp_path / 'run'
  with pytest.raises(KeyboardInterrupt):
    doubling.run(path, process=doubling.At(0, interrupted), evaluate=score)
  row = {'round': '0', 'top1': '1.0'}
  assert doubling.rows(path) == [row]
  assert 'round 0/10: top1 1.0000' in capsys.readouterr().out
  summary = doubling.run(path, evaluate=score)
  assert evaluated == [1, 2**4, 2**8, 2**10]
  first, *others = doubling.rows(path)
  assert first == {**dict.fromkeys(others[0], ''), **row}
  assert [int(r['round']) for r in others] == list(range(1, 11))
  assert '' not in others[0].values()
  assert others[0]['client_parameters_peak'] == '148.0'
  assert json.loads((path / 'summary.json').read_text()) == summary
  assert summary['rounds'] == 10
  assert summary['best'] == {'top1': 1}
  assert summary['final'] == {'top1': 2.0**-10}
  down, up = 400 + 10 * 16, 400 + 10 * 16 + 4 + 80
  assert summary['bytes_down_per_client_round'] == down
  assert summary['bytes_up_per_client_round'] == up
  saved = 1 - (down + up) / (2 * (400 + 50 * 16) + 4)
  assert summary['bytes_saving_vs_fullsoftmax'] == pytest.approx(saved)
  assert summary['clients_skipped_total'] == 10
  assert summary['seconds_per_round_median'] > 0


def test_rounds_to_targets_and_a_resume_with_others(tmp_path):
  path = tmp_path / 'run'
  found = doubling.run(path, 6, target='top1:0.9,top1:0.99')
  # The model is evaluated after rounds 0, 4 and 6.
  assert found['rounds_to_target'] == {'top1:0.9': 4, 'top1:0.99': None}
  text = (path / 'summary.json').read_text()
  assert json.loads(text)['rounds_to_target'] == found['rounds_to_target']
  found = doubling.run(path, 10, target='top1:0,top1:0.99')
  assert found['rounds_to_target'] == {'top1:0': 0, 'top1:0.99': 8}
  config = json.loads((path / 'config.json').read_text())
  assert config['target'] == 'top1:0,top1:0.99'
  assert doubling.run(tmp_path / 'none')['rounds_to_target'] == {}


def falling(weights):
  """Returns a score that is best after round 4."""
  return {'top1': 1 - abs(4 - math.log2(float(weights)))}


def test_it_stops_without_a_better_score(tmp_path):
  """The model is evaluated after rounds 0, 4, 8, ...; the score falls after round 4."""

  choice = targets.BestRound('top1', 2)
  path = tmp_path / 'run'
  found = doubling.run(path, 40, evaluate=falling, best=choice)
  assert found['rounds'] == 12
  assert (found['best_round']['round'], found['best_round']['top1']) == (4, 1)
  # The state after the last round is saved, so the same command trains nothing.
  again = doubling.run(path, 40, evaluate=falling, best=choice)
  assert again == found
  whole = doubling.run(tmp_path / 'whole', 40, evaluate=falling)
  assert (whole['rounds'], whole['best_round']) == (40, None)
  # The same command without this setting continues from there.
  assert doubling.run(path, 40, evaluate=falling)['rounds'] == 40
  assert doubling.rows(path) == doubling.rows(tmp_path / 'whole')


def test_a_resumed_run_stops_only_after_an_evaluation(tmp_path):
  with pytest.raises(KeyboardInterrupt):
    doubling.run(tmp_path, 40, evaluate=falling, process=doubling.At(10, interrupted))
  gc.collect()
  found = doubling.run(tmp_path, 40, evaluate=falling, best=targets.BestRound('top1', 1))
  assert found['rounds'] == 12
  assert found['final']['top1'] == falling(2.0**12)['top1']


def test_the_checkpoint_of_the_best_round_stays(tmp_path):
  """The model is evaluated and saved after rounds 4, 8, 12, ...; the score falls after round 4."""

  path = tmp_path / 'run'

  def kept():
    return checkpoints.kept(path)

  how = {'evaluate': falling, 'checkpoint_every': 4}
  doubling.run(path, 24, **how)
  assert kept() == [4, 16, 20, 24]
  doubling.run(path, 28, **how)  # The resumed run knows the best round so far.
  assert kept() == [4, 20, 24, 28]
  doubling.run(path, 28, **how)
  assert kept() == [4, 20, 24, 28]

  def rising(weights):
    return {'top1': math.log2(float(weights)) + 1}

  doubling.run(path, 32, **{**how, 'evaluate': rising})
  assert kept() == [24, 28, 32]


@pytest.mark.parametrize(('metric', 'kept'), [('top1', [4, 12, 24]), ('', [12, 24])])
def test_a_best_round_that_was_asked_for_has_a_checkpoint_of_its_own(tmp_path, metric, kept):
  """Evaluates after rounds 4, 8, ..., and saves after rounds 12 and 24. Round 4 is best."""

  best = targets.BestRound(metric)
  doubling.run(tmp_path, 24, evaluate=falling, best=best, checkpoint_every=12)
  assert checkpoints.kept(tmp_path) == kept


def test_the_initial_model_stays_if_no_round_is_better(tmp_path):
  def worse(weights):
    return {'top1': 1 / float(weights)}

  how = {'evaluate': worse, 'best': targets.BestRound('top1'), 'checkpoint_every': 4}
  assert doubling.run(tmp_path, 16, **how)['best_round']['round'] == 0
  assert checkpoints.kept(tmp_path) == [0, 8, 12, 16]
  doubling.run(tmp_path, 20, **how)
  assert checkpoints.kept(tmp_path) == [0, 12, 16, 20]


def interrupted(*_):
  raise KeyboardInterrupt


def client_fails():
  raise client_error.ClientError(1, 2, ValueError('no memory'))


@pytest.mark.parametrize(
  ('stopped', 'error', 'again', 'told'),
  [
    # Rounds 7 and 5 are not multiples of 3, so they need a special checkpoint.
    ({'process': doubling.At(7, interrupted)}, KeyboardInterrupt, 5, 'after round 7'),
    # A destructor ignores the exception, so the round ends first.
    (
      {'process': doubling.At(4, lambda: setattr(interrupts, '_received', signal.SIGINT))},
      KeyboardInterrupt,
      4,
      'after round 5',
    ),
    pytest.param(
      {'evaluate': interrupted}, KeyboardInterrupt, None, 'after round 0', marks=pytest.mark.slow
    ),
    ({'process': doubling.At(5, client_fails)}, errors.InputError, 4, "'writer' failed in round 6"),
    # The first run has fewer rounds, and the second run continues.
    ({'rounds': 8}, None, 7, ''),
  ],
)
def test_a_run_that_stops_goes_on_from_there(
  tmp_path, capsys, monkeypatch, stopped, error, again, told
):
  monkeypatch.setattr(interrupts, '_received', 0)
  doubling.run(tmp_path / 'whole')
  expected = pytest.raises(error) if error else contextlib.nullcontext()
  with expected as e:
    doubling.run(tmp_path / 'cut', **stopped)
  assert told in capsys.readouterr().err + str(e and e.value)
  del e, expected
  gc.collect()  # Release the lock of the failed run.
  monkeypatch.setattr(interrupts, '_received', 0)
  doubling.run(tmp_path / 'cut', process=doubling.At(again, interrupted))
  assert doubling.rows(tmp_path / 'cut') == doubling.rows(tmp_path / 'whole')
  with pytest.raises(errors.InputError, match='10 rounds; give at least'):
    doubling.run(tmp_path / 'cut', rounds=8)


def test_a_round_whose_row_is_not_written_is_not_done(tmp_path, monkeypatch):
  release = run_directory.RunDirectory.release

  def until_round_5(self, row, number):
    if number == 5:
      raise KeyboardInterrupt
    release(self, row, number)

  doubling.run(tmp_path / 'whole')
  with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
    patched.setattr(run_directory.RunDirectory, 'release', until_round_5)
    doubling.run(tmp_path / 'cut')
  gc.collect()  # Release the lock of the stopped run.
  doubling.run(tmp_path / 'cut')
  assert doubling.rows(tmp_path / 'cut') == doubling.rows(tmp_path / 'whole')


def test_a_state_that_a_round_used_up_is_not_saved(tmp_path, capsys, monkeypatch):
  def used_up(state):
    raise ValueError('given up')

  doubling.run(tmp_path / 'whole')
  with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
    patched.setattr(training.runtimes, 'keep', used_up)
    doubling.run(tmp_path / 'cut', process=doubling.Doubling(interrupt_at=7))
  assert 'goes on from the checkpoint before' in capsys.readouterr().err
  doubling.run(
    tmp_path / 'cut', process=doubling.Doubling(interrupt_at=1)
  )  # The run resumes at round 6.
  assert doubling.rows(tmp_path / 'cut') == doubling.rows(tmp_path / 'whole')


@pytest.mark.parametrize(
  ('change', 'message'),
  [
    ({'lr': 0.2}, 'lr was 0.1 and is 0.2'),
    ({'extra': 1}, 'extra was None and is 1'),
    (
      {'hyperparameters': {'batch': 2, 'steps': 4}, 'options': {'depth': 8}},
      'depth was 56 and is 8, steps was 3',
    ),
  ],
)
def test_another_configuration_is_refused(tmp_path, change, message):
  config = {
    **doubling.CONFIG,
    'hyperparameters': {'batch': 2, 'steps': 3},
    'options': {'depth': 56},
  }
  run_directory.RunDirectory(tmp_path / 'run', config)
  with pytest.raises(errors.InputError, match=message):
    same_run.check_config(tmp_path / 'run', {**config, **change})
  # JSON has other types than Python.
  config |= {'file': tmp_path, 'count': np.int64(3), 'most': np.inf}
  run_directory.RunDirectory(tmp_path / 'other', config)
  same_run.check_config(tmp_path / 'other', config)


def test_other_data_are_refused_and_settings_that_do_not_matter_may_change(tmp_path):
  for value in (1, 2):
    free = dict.fromkeys(run_files.NOT_CONFIGURATION, value)
    free |= {'target': f'top1:0.{value}', 'unset': ['negatives'] * value}
    run_directory.RunDirectory(tmp_path, {**doubling.CONFIG, **free, 'data': {'examples': 40}})
  # Before the program loads the data, it does not know their fingerprint.
  same_run.check_config(tmp_path, doubling.CONFIG)
  other = {**doubling.CONFIG, 'data': {'examples': 60, 'test_examples': 5}}
  told = 'other data: examples was 40 and is 60, test_examples was None'
  with pytest.raises(errors.InputError, match=told):
    same_run.check_config(tmp_path, other)
  run_directory.RunDirectory(tmp_path / 'unnamed', doubling.CONFIG)
  with pytest.raises(errors.InputError, match='examples was None'):
    run_directory.RunDirectory(tmp_path / 'unnamed', other)


def test_a_directory_that_does_not_fit_is_refused(tmp_path):
  held = run_directory.RunDirectory(tmp_path / 'run', doubling.CONFIG)
  (tmp_path / 'file').write_text('')
  with pytest.raises(errors.InputError, match='is a file'):
    same_run.check_config(tmp_path / 'file', doubling.CONFIG)
  for text in ('{', '[]', '{"rounds": 10}'):
    (held.path / 'config.json').write_text(text)
    with pytest.raises(errors.InputError, match=r'config.json is damaged'):
      same_run.check_config(held.path, doubling.CONFIG)
  # The folder may disappear while the run writes files there.
  gone = tmp_path / 'gone'
  moving = doubling.At(4, lambda: gone.rename(tmp_path / 'elsewhere'))
  with pytest.raises(errors.InputError, match='cannot be written'):
    doubling.run(gone, process=moving)
  assert not gone.exists()


class Dropping(doubling.Doubling):
  """A process that drops every update in some rounds, and has no examples in other rounds."""

  def __init__(self, dropped, empty=()):
    super().__init__()
    self._dropped, self._empty = dropped, empty

  def next(self, state, examples):
    output = super().next(state, examples)
    round_number = state.round_number + 1
    if round_number in {*self._dropped, *self._empty}:
      unmeasured = ('loss', 'class_rows', 'class_rows_largest')
      output.metrics.update(dict.fromkeys(unmeasured, float('nan')))
      output.metrics['clients_dropped'] = 2.0 if round_number in self._dropped else 0.0
    return output


def test_rounds_that_measured_nothing_are_told_and_left_out(tmp_path, capsys):
  process = Dropping(dropped=[2, 9], empty=[5])
  summary = doubling.run(tmp_path / 'run', process=process, warnings=['mine'])
  said = capsys.readouterr()

  def dropped(n):
    return f"{n} dropped every client's update"

  assert said.err.splitlines() == [
    'warning: mine',
    *(f'warning: {dropped(f"round {n}")}, since none was finite' for n in (2, 9)),
  ]
  assert 'loss 0.0000' not in said.out
  unmeasured = [
    row['round']
    for row in doubling.rows(tmp_path / 'run')
    if row['loss'] == row['bytes_up_per_client'] == 'nan'
  ]
  assert unmeasured == ['2', '5', '9']
  assert summary['class_rows_requested_mean'] == 10
  assert summary['bytes_down_per_client_round'] == 400 + 10 * 16
  assert summary['warnings'] == ['mine', dropped('2 rounds')]


def test_what_the_last_round_did_not_measure_is_null(tmp_path):
  """An earlier score must not replace the missing score."""

  def score(w):
    return {'top1': math.nan if w == 2**10 else 0.5}

  assert math.isnan(doubling.run(tmp_path, evaluate=score)['final']['top1'])
  written = json.loads((tmp_path / 'summary.json').read_text())
  assert written['final'] == {'top1': None}
  assert written['best'] == {'top1': 0.5}


def test_five_lost_rounds_in_a_row_stop_the_run(tmp_path, capsys):
  path = tmp_path / 'run'
  # First four lost rounds in a row. Then five lost rounds, with a round without examples among
  # them.
  process = Dropping(dropped=[1, 2, 3, 4, 6, 7, 9, 10, 11], empty=[8])
  message = r'last 5 rounds, up to round 11, .* --client_learning_rate'
  with pytest.raises(errors.DivergedError, match=message):
    doubling.run(path, rounds=20, process=process)
  assert capsys.readouterr().err.count('warning: ') == 9
  assert (path / 'checkpoints' / 'round_11.npz').is_file()
  assert len(doubling.rows(path)) == 12
  # The same command reports the same error and trains nothing.
  with pytest.raises(errors.DivergedError, match=message):
    doubling.run(path, rounds=20, process=Dropping([]))
  assert len(doubling.rows(path)) == 12


@pytest.mark.parametrize('kept', [['checkpoints'], ['metrics.csv']])
def test_what_is_left_of_a_run_without_config_is_refused(tmp_path, kept):
  path = tmp_path / 'run'
  doubling.run(path)
  for file in path.iterdir():
    if file.name not in kept:
      shutil.rmtree(file) if file.is_dir() else file.unlink()
  with pytest.raises(errors.InputError, match=r'no config\.json'):
    doubling.run(path)
  assert [p.name for p in path.iterdir() if p.name != '.lock'] == kept


@pytest.mark.parametrize(
  ('change', 'message'),
  [
    (lambda file: file.unlink(), 'no row of round 0'),
    (lambda file: _drop_lines(file, 1, 2), 'no row of round 0'),
    (lambda file: _drop_lines(file, 4, 6), 'no row of round 3'),
    (lambda file: file.write_bytes(b'\xff\xfe\x00'), 'is damaged'),
  ],
)
def test_a_resume_wants_every_row_of_metrics(tmp_path, change, message):
  path = tmp_path / 'run'
  doubling.run(path, rounds=6)
  change(path / 'metrics.csv')
  before = contents(path)
  with pytest.raises(errors.InputError, match=message):
    doubling.run(path, rounds=8)
  assert contents(path) == before


def _drop_lines(file, first, last):
  lines = file.read_text().splitlines(keepends=True)
  file.write_text(''.join(lines[:first] + lines[last:]))


def contents(path):
  return {p: p.read_bytes() for p in path.rglob('*') if p.is_file() and p.name != '.lock'}


@pytest.mark.parametrize('kind', [doubling.Doubling, doubling.Keeping])
def test_a_checkpoint_is_also_saved_by_the_clock(kind, tmp_path, monkeypatch):
  doubling.run(tmp_path / 'whole', process=kind())
  monkeypatch.setattr(training, '_SAVE_SECONDS', 0)
  with pytest.raises(KeyboardInterrupt):
    doubling.run(tmp_path / 'cut', process=kind(5))
  # The schedule saves rounds 3, 6 and 9.
  kept = (tmp_path / 'cut' / 'checkpoints').glob('round_*')
  assert sorted(path.stem for path in kept) == ['round_3', 'round_4', 'round_5']
  doubling.run(tmp_path / 'cut', process=kind())
  assert doubling.rows(tmp_path / 'cut') == doubling.rows(tmp_path / 'whole')


@pytest.mark.parametrize('kind', ['link', 'pipe'])
def test_a_prepared_directory_harms_no_file_and_waits_for_nobody(kind, tmp_path):
  precious, prepared = tmp_path / 'precious', tmp_path / 'run' / '.lock'
  precious.write_text('precious')
  prepared.parent.mkdir()
  prepared.symlink_to(precious) if kind == 'link' else os.mkfifo(prepared)
  with pytest.raises(errors.InputError, match=r'symbolic links|No such device'):
    doubling.run(tmp_path / 'run')
  assert precious.read_text() == 'precious'
