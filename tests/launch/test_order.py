"""The methods' order, trained for real: minutes, so marked slow."""

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


@pytest.mark.slow
def test_fedss_is_near_full_softmax_and_above_the_rest(tmp_path):
  """Top-1 after 100 rounds on the default glyphs, 200 classes."""
  top1 = {}
  for name, flags in RUNS.items():
    run_dir = tmp_path / name
    subprocess.run(
      [
        *(sys.executable, '-m', 'launch.train', '--task=glyphs', *flags),
        *('--rounds=100', '--eval_every=100', f'--run_dir={run_dir}'),
      ],
      cwd=ROOT,
      check=True,
      timeout=600,
    )
    summary = json.loads((run_dir / 'summary.json').read_text())
    top1[name] = summary['final']['top1']
  assert top1['full'] > 0.7
  assert top1['fedss'] > 0.9 * top1['full']
  assert top1['fedss'] > 1.2 * top1['posonly']
  assert top1['fedss, m=3'] > 1.1 * top1['negonly, m=3']
