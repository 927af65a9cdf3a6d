"""Flags and presets: checked, in effect before TensorFlow is imported."""

import json
import subprocess
import sys

import pytest

from tasks import registry as tasks
from tests.launch import light
from tff_xc import wording
from tff_xc.algorithms import registry as algorithms


@pytest.mark.parametrize(
  'arguments',
  [
    ('train', '--task=bibtex', '--algorithm=fedaws'),
    ('evaluate', '--run_dir=somewhere'),
  ],
)
def test_the_cache_folder_may_be_chosen(arguments, tmp_path, cache_folder):
  chosen = light.call(*arguments, f'--cache_dir={tmp_path}')
  assert chosen.stdout.splitlines()[-1] == str(tmp_path), chosen.stderr
  default = light.call(*arguments)
  assert default.stdout.splitlines()[-1] == str(cache_folder)


@pytest.mark.parametrize(
  ('arguments', 'expected'),
  [
    (('train', '--batch_size=3000000000'), '--batch_size=3000000000: expected'),
    (('train', '--seed=4294967296'), '--seed=4294967296'),
    (('train', '--steps_per_round=10000000000'), 'at most 2147483647'),
    (('train', '--local_steps=65536', '--batch_size=65536'), 'product'),
    (('train', '--client_threads=1000000'), '--client_threads=1000000'),
    (('train', '--client_learning_rate=nan'), 'a finite number'),
    (('compare', 'x', '--rounds=99999999999'), '--rounds=99999999999'),
    (('doctor', '--worker_timeout_seconds=nan'), 'a finite number'),
    (('doctor', '--worker_timeout_seconds=1e9'), '1000000000.0'),
    (('benchmark', 'round', '--timeout_seconds=nan'), 'a finite number'),
    (('benchmark', 'round', '--timeout_seconds=1e9'), '1000000000.0'),
    (('benchmark', 'round', '--max_foreign=inf'), '--max_foreign=inf'),
    (('benchmark', 'round', '--clients=3000000000'), 'from 1 to 2147483647'),
    (('benchmark', 'round', '--passes=3000000000'), '--passes=3000000000'),
  ],
)
def test_numbers_that_are_too_large_are_one_sentence(arguments, expected):
  if arguments[0] == 'train':
    algorithm = 'centralized' if 'steps_per_round' in arguments[1] else 'fedaws'
    arguments = (*arguments, '--task=glyphs', f'--algorithm={algorithm}')
  light.assert_one_sentence(light.call(*arguments), expected)


RESOLVE_EACH = """
import json, sys
from absl import flags
from absl.testing import flagsaver
from tff_xc import errors
from launch import settings
from launch import train
answers = {}
for arguments in json.load(sys.stdin):
  saved = flagsaver.save_flag_values()
  try:
    flags.FLAGS(['train', *arguments])
    answers[arguments[-1]] = settings.resolve()
  except (flags.Error, errors.InputError) as e:
    answers[arguments[-1]] = str(e)
  flagsaver.restore_flag_values(saved)
assert 'tensorflow' not in sys.modules
json.dump(answers, sys.stdout)
"""


def resolve_each(cases):
  """Returns the answer of `RESOLVE_EACH` to each command line."""
  done = subprocess.run(
    [sys.executable, '-c', RESOLVE_EACH],
    input=json.dumps(cases),
    cwd=light.ROOT,
    capture_output=True,
    text=True,
    timeout=60,
    check=False,
  )
  assert done.returncode == 0, done.stderr
  answers = json.loads(done.stdout)
  assert len(answers) == len(cases)
  return answers


def test_every_number_of_a_run_has_bounds():
  """Values that wrap an int32, overflow a float32, or are nan are refused."""
  cases = []
  parameters = [*algorithms.HYPERPARAMETERS.values(), *tasks.OPTIONS.values()]
  for parameter in parameters:
    of = lambda found, default, name=parameter.name: next(
      (n for n, names in found.items() if name in names), default
    )
    algorithm = of(
      {n: a.names for n, a in algorithms.ALGORITHMS.items()}, 'fedavg'
    )
    task = of({n: t.option_values() for n, t in tasks.TASKS.items()}, 'glyphs')
    bad = {int: (-1, 2**63, 10**30), float: ('nan', 'inf', '-inf', 1e39)}
    cases += [
      [
        f'--task={task}',
        f'--algorithm={algorithm}',
        '--data_dir=mine',
        f'--{parameter.name}={v}',
      ]
      for v in bad.get(type(parameter.default), ())
    ]
  answers = resolve_each(cases)
  for flag, answer in answers.items():
    assert isinstance(answer, str), flag
    assert flag.split('=')[0] in answer
    assert '\n' not in answer


def test_presets_resolve_and_their_heads_tell_the_command():
  presets = sorted((light.ROOT / 'launch' / 'presets').glob('*.flags'))
  answers = resolve_each([[f'--flagfile={preset}'] for preset in presets])
  for preset, config in zip(presets, answers.values(), strict=True):
    text = preset.read_text()
    assert f'--flagfile=launch/presets/{preset.name}' in text
    assert 'python -m launch.train' in text
    found = algorithms.get(config['algorithm'])
    assert not found(**config['hyperparameters']).warnings(10**6, 1)


@pytest.mark.parametrize(
  ('arguments', 'limit'),
  [
    (('--task=cifar10', '--negatives=10'), 10),
    (('--task=glyphs-landmarks', '--negatives=2028'), 2028),
    (('--task=glyphs', '--num_classes=20', '--negatives=30'), 20),
  ],
)
def test_as_many_negatives_as_classes_are_refused(arguments, limit):
  done = light.call('train', '--algorithm=fedss', *arguments)
  light.assert_one_sentence(done, f'fewer than the {limit} classes')


@pytest.mark.parametrize(
  'flag', ['virtual_clients=64', 'proximal_weight=0.1', 'norow_renormalise']
)
def test_a_flag_with_another_name_now_is_told(flag):
  new = wording.RENAMED[flag.removeprefix('no').partition('=')[0]]
  done = light.call('train', '--task=glyphs', '--algorithm=fedss', f'--{flag}')
  light.assert_one_sentence(done, f'--{new}')
