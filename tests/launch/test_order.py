"""The order of the methods' scores, in real training: slow, takes minutes."""

import json
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]


RUNS = {
  'full': ('--algorithm=fullsoftmax',),
  'fedss': ('--algorithm=fedss',),
  'posonly': ('--algorithm=posonly',),
  'fedss, m=3': ('--algorithm=fedss', '--negatives=3'),
  'negonly, m=3': ('--algorithm=negonly', '--negatives=3'),
}


def train(run_dir, *flags):
  """Trains without evaluating in between; returns the final metrics."""
  subprocess.run(
    [
      *(sys.executable, '-m', 'launch.train', *flags),
      *('--eval_every=100', '--rounds=100', f'--run_dir={run_dir}'),
    ],
    cwd=ROOT,
    check=True,
    timeout=600,
  )
  return json.loads((run_dir / 'summary.json').read_text())['final']


@pytest.mark.slow
def test_fedss_is_near_full_softmax_and_above_the_rest(tmp_path):
  """Top-1 after 100 rounds on the default glyphs, 200 classes."""
  top1 = {
    name: train(tmp_path / name, '--task=glyphs', *flags)['top1']
    for name, flags in RUNS.items()
  }
  assert top1['full'] > 0.7
  assert top1['fedss'] > 0.9 * top1['full']
  assert top1['fedss'] > 1.2 * top1['posonly']
  assert top1['fedss, m=3'] > 1.1 * top1['negonly, m=3']


@pytest.mark.slow
def test_fedaws_is_near_the_oracle_on_delicious(tmp_path, data_dir):
  """P@1 after 100 rounds with one label a client; softmax has 53.7 %."""
  p1 = {
    name: train(
      tmp_path / name,
      '--task=delicious',
      f'--algorithm={name}',
      f'--data_dir={data_dir}',
    )['p@1']
    for name in ('fedaws', 'fedaws_baseline2')
  }
  assert p1['fedaws'] > 0.75 * 0.537
  assert p1['fedaws'] > 1.2 * p1['fedaws_baseline2']
