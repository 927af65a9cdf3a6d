"""Every preset resolves: its flags exist and fit its task and algorithm."""

import json
import pathlib
import subprocess
import sys

import pytest

from launch import preset_files
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


def test_the_files_are_what_the_tables_say():
  assert {p.stem for p in PRESETS} == set(preset_files.PRESETS)
  for preset in PRESETS:
    expected = preset_files.text_of(preset.stem)
    assert preset.read_text() == expected, 'run `make presets`'


def test_a_preset_of_a_table_tells_what_was_published():
  text = ' '.join(preset_files.text_of('fedss_landmarks').split())
  text = text.replace(' # ', ' ')
  assert 'fedss top-1 51.7 ± 0.4 %, negonly top-1 7.1 ± 3.7 %.' in text
