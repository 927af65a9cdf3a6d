"""Every preset resolves: its flags exist and fit its task and algorithm."""

import json
import pathlib
import subprocess
import sys

import pytest

from tff_xc.algorithms import registry as algorithms

ROOT = pathlib.Path(__file__).parents[2]
PRESETS = sorted((ROOT / 'launch' / 'presets').glob('*.flags'))

RESOLVE = """
import json
import sys
from absl import flags
from launch import settings
from launch import train
flags.FLAGS(sys.argv)
print(json.dumps(settings.resolve()))
"""


@pytest.mark.parametrize('preset', PRESETS, ids=lambda p: p.stem)
def test_the_preset_resolves_and_its_head_tells_the_command(preset):
  done = subprocess.run(
    [sys.executable, '-c', RESOLVE, f'--flagfile={preset}'],
    cwd=ROOT,
    capture_output=True,
    text=True,
    timeout=60,
    check=False,
  )
  assert done.returncode == 0, done.stderr
  text = preset.read_text()
  assert f'--flagfile=launch/presets/{preset.name}' in text
  assert 'python -m launch.train' in text
  assert '@' not in text.replace('MAP@10', '')
  config = json.loads(done.stdout)
  entry = algorithms.get(config['algorithm'])
  assert not entry(**config['hyperparameters']).warnings(10**6, 1)
