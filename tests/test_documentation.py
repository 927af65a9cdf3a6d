"""The code of README and docs runs."""

import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest

from datasets import arrays
from tests import documents
from tff_xc.encoders import keras_model

OWN = documents.page('your_own')
# Each command in a process of its own, in which the large imports are done.
MAKE_SPLITS = """
import json, os, pathlib, runpy, shutil, sys
from datasets.splits import making
for command in json.loads(sys.argv[1]):
  child = os.fork()
  if not child:
    sys.argv = ['make_splits', *command]
    runpy.run_module('launch.make_splits', run_name='__main__')
    sys.exit()
  assert not os.waitpid(child, 0)[1], command
  made = pathlib.Path('splits/photos/federated_train.csv')
  if made.exists():
    shutil.copy(made, made.name)
"""


def test_the_python_example_runs(tff_worker):
  import tensorflow_federated as tff

  from tff_xc.round import examples as examples_lib

  [example] = [
    block for block in documents.code(OWN, 'python') if 'learning.next' in block
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
  examples = [
    block
    for block in documents.code(OWN, 'python')
    if 'learning.next' not in block
  ]
  assert len(examples) == 6
  y = np.array([0, 1, 1, 1])
  x = np.random.default_rng(0).integers(0, 256, [4, 28, 28], np.uint8)
  # Dataclasses look their module up.
  names = {'np': np, 'x': x, 'y': y, 'client': y + 5, 'run_dir': 'run'}
  names['__name__'] = __name__
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
  assert names['algorithm'].loss.smoothing == 0.1
  assert names['summary']['rounds'] == 3
  [rows, *_] = np.load(tmp_path / 'run' / 'checkpoints' / 'round_3.npz')[
    'weights/tables/class'
  ][None]
  np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, rtol=1e-5)


def test_the_loss_shown_is_that_of_the_examples():
  [shown] = [
    block[block.index('@dataclasses') :]
    for block in documents.code(OWN, 'python')
    if 'class SmoothedSoftmax' in block
  ]
  example = documents.ROOT / 'tests' / 'examples' / 'test_prototypes.py'
  assert shown.rstrip() in example.read_text()


@pytest.mark.slow  # `test_make_splits` has each rule on each input.
def test_the_splits_of_own_data_are_made(tmp_path):
  for i in range(200):
    path = tmp_path / 'photos' / f'class{i % 4}' / f'{i}.jpg'
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b'')
  rows = [f'{i},u{i % 7},i{i % 5}' for i in range(60)]
  (tmp_path / 'ratings.csv').write_text('\n'.join(['row,user,item', *rows]))
  lines = [f'{i % 4} {i}:1' for i in range(20)]
  (tmp_path / 'train.txt').write_text('\n'.join(['20 20 4', *lines, '']))
  commands = [
    words[1:]
    for words in documents.commands(
      documents.section(OWN, '## Splits of your data')
    )
    if words[0] == 'launch.make_splits'
  ]
  assert len(commands) == 4
  done = subprocess.run(
    [sys.executable, '-c', MAKE_SPLITS, json.dumps(commands)],
    cwd=tmp_path,
    capture_output=True,
    text=True,
    env={**os.environ, 'PYTHONPATH': str(documents.ROOT)},
    timeout=300,
    check=False,
  )
  assert done.returncode == 0, done.stderr
  printed = done.stdout
  assert 'clients                       20' in printed
  assert 'EMD' in printed


def test_every_command_named_exists():
  modules = set(
    re.findall(r'python -m (launch\.\w+)[` ]', documents.everything())
  )
  assert len(modules) >= 4
  for module in modules:
    done = subprocess.run(
      [sys.executable, '-m', module, '--help'],
      cwd=documents.ROOT,
      capture_output=True,
      text=True,
      timeout=60,
      check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
  ('page', 'task', 'algorithm', 'changes', 'rows'),
  [
    ('fedss', 'glyphs', 'fedss', {}, 50),
    ('fedaws', 'glyphs', 'fedaws', {}, 10),
    ('fedvc', 'glyphs', 'fedir', {'importance_weights': 'train'}, 200),
    ('turbosvm', 'glyphs-femnist', 'turbosvm', {}, 62),
    # A smaller set with the network of EURLex-4K.
    ('fedmlh', 'sparse-words-sets', 'fedmlh', {}, 1_000),
  ],
)
def test_the_worked_examples_have_the_bytes_that_a_run_reports(
  page, task, algorithm, changes, rows
):
  from tasks import experiment
  from tff_xc.measure import communication

  config = experiment.resolve(task, algorithm, changes)
  made = experiment.assemble(config).algorithm
  requested = {'class': rows}
  columns = communication.messages(made).of_round(requested, requested)
  shown = re.findall(r'\*\*([\d,]+)\*\*', documents.page(page))
  assert [int(number.replace(',', '')) for number in shown] == [
    columns['bytes_down_per_client'],
    columns['bytes_up_per_client'],
  ]


def test_no_two_examples_train_in_one_directory():
  """A reader may follow README and then the pages."""
  of: dict[str, list[str]] = {}
  for path in documents.FILES:
    for words in documents.commands(path.read_text()):
      found = [word for word in words if word.startswith('--run_dir=')]
      if words[0] == 'launch.train' and found:
        others = of.setdefault(found[0], sorted(words))
        assert others == sorted(words), f'{path}: {found[0]}'
