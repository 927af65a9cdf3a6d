"""Shows the time left and the bytes sent so far. Tests control the clock."""

import pytest

from tff_xc.experiment import progress as progress_lib

ROW = {
  'round': 1.0,
  'loss': 0.5,
  'clients': 8.0,
  'bytes_down_per_client': 1e6,
  'bytes_up_per_client': 5e5,
}


class Clock:
  """A clock that a test moves."""

  now = 100.0

  def __call__(self):
    return self.now


def one_round(shown, clock, done, schedule, seconds=2.0):
  """Runs a round. An evaluation takes 30 seconds, and a checkpoint 7 seconds."""
  clock.now += seconds
  scores = None
  if schedule.due(schedule.eval_every, done):
    with shown.timing('evaluation'):
      clock.now += 30
    scores = {'top1': 0.25, 'mcc': -0.5}
  if schedule.due(schedule.checkpoint_every, done):
    with shown.timing('checkpoint'):
      clock.now += 7
  shown.round_done(ROW, scores)


def test_the_time_left_counts_evaluations_and_checkpoints(capsys):
  clock, schedule = Clock(), progress_lib.Schedule(100, 5, 20)
  shown = progress_lib.Progress(schedule, ('top1', 'mcc'), [], clock)
  with shown.timing('evaluation'):
    clock.now += 30
  shown.show({'top1': 0.0, 'mcc': 0.0})
  for done in range(1, 10):
    # The first round compiles, and another round is disturbed. Neither affects the estimate.
    one_round(shown, clock, done, schedule, 90.0 if done in (1, 7) else 2.0)
    assert shown.seconds_left() is None
  for done in range(10, 20):
    # Before the first checkpoint, the estimate leaves checkpoints out.
    one_round(shown, clock, done, schedule)
    parts = 2 * (100 - done), 30 * (20 - done // 5)
    assert shown.seconds_left() == sum(parts)
  for done in range(20, 101):
    one_round(shown, clock, done, schedule)
    parts = 2 * (100 - done), 30 * (20 - done // 5), 7 * (5 - done // 20)
    assert shown.seconds_left() == sum(parts)
  shown.close()
  lines = capsys.readouterr().out.splitlines()
  assert lines[0] == 'round 0/100: top1 0.0000, mcc 0.0000'
  assert lines[1] == ('round 5/100: loss 0.5000, top1 0.2500, mcc -0.5000, 60.0 MB so far')
  assert lines[2].endswith('mcc -0.5000, 120 MB so far, 12 min left')
  # 80 rounds, 16 evaluations and 4 checkpoints remain.
  assert lines[4].endswith('mcc -0.5000, 240 MB so far, 11 min left')
  assert lines[-1].endswith('mcc -0.5000, 1.20 GB so far')
  assert len(lines) == 21


def test_bytes_before_a_resume_count_and_its_times_do_not(capsys):
  clock, schedule = Clock(), progress_lib.Schedule(200, 50, 200)
  lost = {**ROW, 'bytes_down_per_client': float('nan')}
  rows = [{'round': 0.0}, *[{**ROW, 'seconds': 1e6}] * 59, lost]
  shown = progress_lib.Progress(schedule, ('top1',), rows, clock)
  for done in range(61, 101):
    assert shown.seconds_left() is None  # Without an evaluation there is no estimate.
    one_round(shown, clock, done, schedule)
  assert shown.seconds_left() == 2 * 100 + 30 * 2
  shown.close()
  # There were 99 rounds of 8 clients, with 1.5 MB each.
  [line] = capsys.readouterr().out.splitlines()
  assert line.endswith('1.19 GB so far, 4 min left')


@pytest.mark.parametrize('width', [60, 100, 10])
def test_a_line_has_the_first_scores_that_fit(width, monkeypatch, capsys):
  monkeypatch.setenv('COLUMNS', str(width))
  names = [f'pc@{k}_infrequent' for k in range(20)]
  shown = progress_lib.Progress(progress_lib.Schedule(4, 2, 4), names, [], Clock())
  nothing = dict.fromkeys(('bytes_down_per_client', 'bytes_up_per_client'), 0.0)
  shown.round_done({**ROW, **nothing}, {names[0]: 0.5})  # A round without clients.
  shown.round_done(ROW, dict.fromkeys(reversed(names), 0.5))
  shown.close()
  first, line = capsys.readouterr().out.splitlines()
  assert first == 'round 1/4: loss 0.5000, pc@0_infrequent 0.5000'
  expected = 'round 2/4: loss 0.5000, pc@0_infrequent 0.5000'
  if width == 100:
    expected += ', pc@1_infrequent 0.5000'
  assert line == f'{expected}, …, 12.0 MB so far'
