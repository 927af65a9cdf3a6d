"""`launch.benchmark` from the command line."""

import json
import os
import pathlib
import subprocess
import sys

import pytest
from absl import flags

import tff_xc
from launch import benchmark as command_lib
from launch.benchmarks import catalog
from launch.benchmarks import process
from launch.benchmarks import report
from tests.launch import light
from tff_xc.runtime import registry

ROOT = pathlib.Path(__file__).parents[2]
QUICK = ('--small', '--passes=2', '--warm_up=1', '--max_foreign=100')


def call(*arguments):
  return subprocess.run(
    [sys.executable, '-m', 'launch.benchmark', *map(str, arguments)],
    cwd=ROOT,
    capture_output=True,
    text=True,
    timeout=300,
    check=False,
  )


def test_help_names_flags_sizes_and_every_benchmark():
  text = light.call('benchmark', '--help').stdout
  for word in ('--contenders', '--num_classes', '--peers', 'torch_submodel'):
    assert word in text
  for name, benchmark in catalog.BENCHMARKS.items():
    assert f'  {name} ' in text
    assert ' '.join(benchmark.summary.split()) in ' '.join(text.split())


@pytest.mark.parametrize(
  ('arguments', 'message'),
  [
    (
      (),
      'round, bottleneck, classes, select, small, spreadout, svm, rank, paper',
    ),
    (('rounds',), 'did you mean round?'),
    (('round', '--contenders=plian'), 'those of round are plain, in_process,'),
    (('round', '--contenders=plain,plain'), 'name each contender once'),
    (('select', '--num_classes=10'), 'which takes: --cl'),
    (('round', '--clients=0'), '--clients=0'),
    (('classes', '--num_classes=10,x'), 'numbers from 1 to 2147483647'),
    (('growth', '--clients=10,10'), 'each once'),
    (('growth', '--clients=,'), '--clients='),
    (('round', '--output=/nowhere/x.json'), 'folder'),
    (('small', f'--peers=pfl_torch={sys.executable}'), 'small has no peers'),
    (
      ('round', '--peers=torch_submodel=python'),
      'pfl_torch, torch_side_by_side, torch_gpu',
    ),
    (('round', '--peers=pfl_torch=/nowhere'), '/nowhere'),
  ],
)
def test_bad_input_is_one_sentence_and_status_2(arguments, message):
  light.assert_one_sentence(light.call('benchmark', *arguments), message)


def test_a_pipe_is_refused_before_anything_is_measured(tmp_path):
  os.mkfifo(tmp_path / 'pipe')
  done = light.call('benchmark', 'select', f'--output={tmp_path / "pipe"}')
  light.assert_one_sentence(done, 'no regular file')


def test_the_command_is_told_without_files_and_interpreters(monkeypatch):
  for name in command_lib._LIMITS:
    monkeypatch.delenv(name, raising=False)
  monkeypatch.setattr(tff_xc, 'ONEDNN_GIVEN', None)
  values = flags.FlagValues()
  flags.DEFINE_string('output', None, '', flag_values=values)
  flags.DEFINE_list('peers', [], '', flag_values=values)
  flags.DEFINE_integer('passes', None, '', short_name='p', flag_values=values)
  flags.DEFINE_integer('warm_up', None, '', flag_values=values)
  given = ['--output', '/a/b.json', '--peers=a=/x/python,b=/y/python']
  values(['', *given, '--passes=3'])
  expected = 'launch.benchmark round --peers=a=PYTHON,b=PYTHON --passes=3'
  assert command_lib.command('round', values) == expected
  monkeypatch.setenv('ONEDNN_MAX_CPU_ISA', 'AVX2')
  assert (
    command_lib.command('round', values)
    == f'ONEDNN_MAX_CPU_ISA=AVX2 {expected}'
  )


@pytest.mark.slow
def test_a_round_is_measured_and_written(tmp_path, monkeypatch):
  monkeypatch.delenv(tff_xc.ONEDNN, raising=False)  # The import sets it here.
  output = tmp_path / 'round.json'
  done = call(
    'round', *QUICK, '--contenders=plain,worker', f'--output={output}'
  )
  assert done.returncode == 0, done.stderr
  assert done.stderr == ''
  assert [path.name for path in tmp_path.iterdir()] == ['round.json']
  found = json.loads(output.read_text())
  assert list(found['ratios']) == ['worker/plain'] == list(found['ranges'])
  least, largest = found['ranges']['worker/plain']
  assert 0 < least <= found['ratios']['worker/plain'] <= largest
  assert set(found['median_seconds']) == {'plain', 'worker'}
  # The peak includes the worker's process.
  assert 50 < found['peak_mb']['plain'] < found['peak_mb']['worker'] < 5000
  assert (found['name'], found['passes'], found['dropped']) == ('round', 2, 0)
  assert found['settings']['embedding_dim'] == 32
  assert found['versions']['tensorflow-federated']
  assert found['machine']['cores'] >= 1
  assert found['command'].startswith('launch.benchmark round --')
  assert '--small' in found['command']
  assert str(tmp_path) not in found['command']
  assert report.read(output) == found
  assert 'worker/plain' in done.stdout
  assert str(output) in done.stdout


@pytest.mark.slow
def test_a_start_is_measured_part_by_part(tmp_path):
  output = tmp_path / 'start.json'
  runtimes = [n for n in ('in_process', 'worker') if n in registry.names()]
  done = call(
    *('start', '--small', '--passes=1', '--warm_up=0', '--max_foreign=100'),
    f'--contenders={",".join(runtimes)}',
    f'--output={output}',
  )
  assert done.returncode == 0, done.stderr
  found = json.loads(output.read_text())
  parts = found['parts']['worker']
  assert set(parts) == {
    *('interpreter', 'import tensorflow', 'import tff', 'build process'),
    *('install runtime', 'initialize', 'first round', 'second round'),
  }
  assert all(seconds > 0 for seconds in parts.values())
  # Its time is the sum of all parts except the second round.
  assert found['median_seconds']['worker'] == pytest.approx(
    sum(parts.values()) - parts['second round']
  )
  assert 'import tensorflow' in done.stdout


def test_a_contender_that_fails_is_one_sentence(tmp_path):
  done = call(
    *('select', *QUICK, '--contenders=floor', '--timeout_seconds=0.1'),
    f'--output={tmp_path / "x.json"}',
  )
  assert done.returncode == 2
  assert done.stderr.startswith('error: contender floor did not answer')
  assert os.listdir(tmp_path) == []


def test_the_programs_of_the_peers_run_by_their_path():
  # Without their packages, peers must fail at an import and not earlier.
  folder = ROOT / 'launch' / 'benchmarks' / 'peers'
  programs = {
    folder / f'{name}.py'
    for benchmark in catalog.BENCHMARKS.values()
    for name in process.programs(benchmark, benchmark.settings())
  }
  assert programs == {
    path
    for path in folder.glob('*.py')
    if 'protocol.serve(' in path.read_text()
  }
  for path in programs:
    done = subprocess.run(
      [sys.executable, '-S', str(path)],
      env={'PATH': os.environ['PATH']},
      capture_output=True,
      text=True,
      check=False,
    )
    assert 'ModuleNotFoundError' in done.stderr
