"""launch.train, killed again and again, ends like a run that was not."""

import json
import pathlib

import numpy as np
import pytest

from tests import doubling, processes, small_data

ROOT = pathlib.Path(__file__).parents[2]
KILLS = 10
# MOON's clients keep states, and each round saves a checkpoint.
FLAGS = (
  *small_data.SPARSE_WORDS,
  '--algorithm=moon',
  '--client_failure_rate=0.2',
  '--robust_aggregation=zeroing+clipping',
  '--rounds=200',
  '--eval_every=5',
  '--checkpoint_every=1',
)

# Sequences whose features are class rows; a round is chosen by validation.
ITEMS = (
  '--task=items-demo',
  '--algorithm=scaffold',
  '--num_classes=40',
  '--num_clients=15',
  '--embedding_dim=8',
  '--clients_per_round=4',
  '--rounds=200',
  '--eval_every=5',
  '--checkpoint_every=1',
)


def kill(root, kills, flags, own=(), env=None):
  """Trains with kills and without, and compares.

  Args:
    root: a directory.
    kills: how many.
    flags: of launch.train.
    own: columns of metrics.csv that only the killed one has.
    env: the environment; None for this process's own.
  """
  done = processes.python(
    '-m',
    'tests.launch.killed_training',
    str(root),
    str(kills),
    *flags,
    cwd=ROOT,
    env=env,
    timeout=1800,
  )
  output = (root / 'output').read_text()
  assert done.returncode == 0, done.stderr[-2000:] + output[-2000:]
  found = [int(n) for n in (root / 'log').read_text().split()]
  assert len(found) == kills
  assert len(set(found)) > kills / 2  # Most starts came further.
  killed, whole = root / 'killed', root / 'whole'
  tables = [doubling.rows(path) for path in (killed, whole)]
  assert all(name in tables[0][-1] for name in own)  # It used its runtime.
  for row in tables[0] + tables[1]:
    for name in own:
      row.pop(name, None)
  assert tables[0] == tables[1]
  ends = [json.loads((p / 'summary.json').read_text()) for p in (killed, whole)]
  for end in ends:
    del end['seconds_per_round_median']
  assert ends[0] == ends[1]
  files = sorted(p.relative_to(whole) for p in whole.rglob('*.npz'))
  assert files == sorted(p.relative_to(killed) for p in killed.rglob('*.npz'))
  assert sum('client_states' in str(file) for file in files) > 5
  for file in files:
    with np.load(whole / file) as a, np.load(killed / file) as b:
      assert a.files == b.files
      for name in a.files:
        np.testing.assert_array_equal(a[name], b[name], f'{file} {name}')


@pytest.mark.slow
@pytest.mark.parametrize('flags', [FLAGS, ITEMS])
def test_training_killed_at_random_ends_like_one_that_was_not(tmp_path, flags):
  kill(tmp_path, KILLS, flags)
