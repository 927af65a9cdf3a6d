"""The README's code and commands are the package's."""

import json
import os
import pathlib
import re
import subprocess
import sys

import numpy as np

from datasets import arrays
from tff_xc.encoders import keras_model

ROOT = pathlib.Path(__file__).parents[1]
README = (ROOT / 'README.md').read_text()
# Each command in a process of its own, in which the large imports are done.
MAKE_SPLITS = """
import json, os, pathlib, runpy, sys
from datasets.splits import making, output
for command in json.loads(sys.argv[1]):
  child = os.fork()
  if not child:
    sys.argv = ['make_splits', *command]
    runpy.run_module('launch.make_splits', run_name='__main__')
    sys.exit()
  assert not os.waitpid(child, 0)[1], command
  made = pathlib.Path('splits/photos/federated_train.csv')
  if made.exists():
    made.rename(made.name)
"""


def test_the_python_example_runs(tff_worker):
  import tensorflow_federated as tff

  from tff_xc.round import examples as examples_lib

  [example] = [
    block
    for block in re.findall(r'```python\n(.*?)```', README, re.DOTALL)
    if 'learning.next' in block
  ]
  x, y = np.zeros([3, 28, 28], np.uint8), np.array([0, 963, 5], np.int32)
  client = examples_lib.ClientExamples(x, y, np.int64(0), y)
  names = {'cohorts': [[client]]}
  try:
    exec(example, names)
  finally:
    tff.framework.set_default_context(tff_worker)
  assert names['state'].round_number == 1
  assert names['metrics']['class_rows'] == 83


def test_the_examples_of_own_data_network_and_algorithm_run(
  in_process, tmp_path, monkeypatch
):
  monkeypatch.chdir(tmp_path)
  path = README[README.index('## Your own data') : README.index('## As a')]
  examples = re.findall(r'```python\n(.*?)```', path, re.DOTALL)
  assert len(examples) == 5
  y = np.array([0, 1, 1, 1])
  x = np.random.default_rng(0).integers(0, 256, [4, 28, 28], np.uint8)
  names = {'np': np, 'x': x, 'y': y, 'client': y + 5, 'run_dir': 'run'}
  for example in examples:
    exec(example, names)
  encoder = keras_model.build_keras_encoder(
    names['own_network']((32, 32, 3)), (32, 32, 3)
  )
  assert encoder.embedding_dim == 1280
  for dataset in (names['dataset'], arrays.load('mine.npz')):
    assert dataset.train.client_ids == ['5', '6']
  found = names['other_clients'].train
  assert found.client_ids == ['0/0', '1/0', '1/1']
  assert found.numbers('1/1').tolist() == [1, 3]
  assert names['summary']['rounds'] == 3
  [rows, *_] = np.load(tmp_path / 'run' / 'checkpoints' / 'round_3.npz')[
    'weights/tables/class'
  ][None]
  np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, rtol=1e-5)


def test_the_splits_of_own_data_are_made(tmp_path):
  for i in range(200):
    path = tmp_path / 'photos' / f'class{i % 4}' / f'{i}.jpg'
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b'')
  rows = [f'{i},u{i % 7},i{i % 5}' for i in range(60)]
  (tmp_path / 'ratings.csv').write_text('\n'.join(['row,user,item', *rows]))
  lines = [f'{i % 4} {i}:1' for i in range(20)]
  (tmp_path / 'train.txt').write_text('\n'.join(['20 20 4', *lines, '']))
  block = README[README.index('## Splits of') :].split('```')[1]
  commands = [
    line.split()[3:] for line in block.replace('\\\n', '').strip().split('\n')
  ]
  assert len(commands) == 4
  done = subprocess.run(
    [sys.executable, '-c', MAKE_SPLITS, json.dumps(commands)],
    cwd=tmp_path,
    capture_output=True,
    text=True,
    env={**os.environ, 'PYTHONPATH': str(ROOT)},
    timeout=300,
    check=False,
  )
  assert done.returncode == 0, done.stderr
  printed = done.stdout
  assert 'clients                      100' in printed
  assert 'EMD' in printed


def test_every_command_named_exists():
  modules = set(re.findall(r'python -m (launch\.\w+)', README))
  assert len(modules) >= 4
  for module in modules:
    done = subprocess.run(
      [sys.executable, '-m', module, '--help'],
      cwd=ROOT,
      capture_output=True,
      text=True,
      timeout=60,
      check=False,
    )
    assert done.returncode == 0, done.stderr


def test_every_file_and_flag_named_exists():
  for path in re.findall(r'`((?:tff_xc|tasks|launch|docs)/[\w/.]+\w)`', README):
    assert (ROOT / path).exists(), path
  help_text = ''.join(
    subprocess.run(
      [sys.executable, '-m', f'launch.{command}', '--help'],
      cwd=ROOT,
      capture_output=True,
      text=True,
      env={**os.environ, 'COLUMNS': '200'},
      timeout=60,
      check=False,
    ).stdout
    for command in (
      *('train', 'sweep', 'benchmark', 'make_splits', 'compare'),
      'reproduce',
    )
  )
  for flag in re.findall(r'--(\w+)=', README):
    known = f'--{flag}' in help_text or f'--[no]{flag}' in help_text
    assert known or flag in ('flagfile', 'run_dir'), flag


def test_no_placeholder_is_left():
  assert not re.search(r'@[A-Z]+@', README)
