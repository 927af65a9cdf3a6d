"""Runs the code of README and docs."""

import os
import re
import shutil

import numpy as np
import pytest

from datasets import own as own_data
from tests import documents, processes
from tests.launch import own_examples
from tff_xc.encoders import keras_model

OWN = documents.page('your_own')


def test_the_python_example_runs(in_process):
  from tff_xc.round import examples as examples_lib

  [example] = [block for block in documents.code(OWN, 'python') if 'learning.next' in block]
  x, y = np.zeros([3, 28, 28], np.uint8), np.array([0, 963, 5], np.int32)
  client = examples_lib.ClientExamples(x, y, np.int64(0), y)
  names = {'cohorts': [[client]]}
  exec(example, names)
  assert names['state'].round_number == 1
  assert names['metrics']['class_rows'] == 83


@pytest.mark.slow
def test_the_examples_of_own_data_network_and_algorithm_run(in_process, tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  examples = [block for block in documents.code(OWN, 'python') if 'learning.next' not in block]
  y = np.array([0, 1, 1, 1])
  np.save('embeddings.npy', np.zeros([4, 3]))
  x = np.random.default_rng(0).integers(0, 256, [4, 28, 28], np.uint8)
  # Dataclasses look up their module by name.
  names = {'np': np, 'x': x, 'y': y, 'client': y + 5, 'run_dir': 'run'}
  names['__name__'] = __name__
  for example in examples:
    exec(example, names)
  encoder = keras_model.build_keras_encoder(names['own_network']((32, 32, 3)), (32, 32, 3))
  assert encoder.embedding_dim == 1280
  keras = names['keras_classifier'].encoder
  assert (keras.example_spec.dtype.name, keras.embedding_dim) == ('uint8', 16)
  for dataset in (names['dataset'], own_data.load_images('mine.npz')):
    assert dataset.train.client_ids == ['5', '6']
  found = names['other_clients'].train
  assert found.client_ids == ['0/0', '1/0', '1/1']
  assert found.numbers('1/1').tolist() == [1, 3]
  assert names['algorithm'].loss.smoothing == 0.1
  assert names['summary']['rounds'] == 3
  [rows, *_] = np.load(tmp_path / 'run' / 'checkpoints' / 'round_3.npz')['weights/tables/class'][
    None
  ]
  np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, rtol=1e-5)


@pytest.mark.slow
def test_the_code_of_coming_from_tff_runs(in_process, tmp_path, monkeypatch, capsys):
  from tff_xc.runtime import registry

  # A second runtime in this process would compile everything again.
  monkeypatch.setattr(registry, 'install', lambda _: in_process)
  monkeypatch.chdir(tmp_path)
  names = {}
  for example in documents.code(documents.page('from_tff'), 'python'):
    exec(example, names)
  assert names['state'].round_number == 1
  # The client requests the rows of its 10 classes and of 20 negatives.
  assert names['metrics']['class_rows'] == 30
  assert names['metrics']['examples'] == 20
  assert "{'top1': 0." in capsys.readouterr().out
  table = (tmp_path / 'metrics.csv').read_text().splitlines()
  assert 'model_metrics/loss' in table[0]
  assert len(table) == 3


@pytest.mark.slow
def test_the_commands_and_the_code_of_using_models_run(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  own_examples.photos(tmp_path)
  (tmp_path / 'photos/dog/3.jpg').unlink()  # This file is not an image.
  shutil.copy(tmp_path / 'photos/emu/1.jpg', tmp_path / 'new.jpg')
  page = documents.page('using_models')
  draw, program = documents.code(page, 'python')
  exec(draw, {})
  demo = re.search(r'^DEMO := -m (.*)$', (documents.ROOT / 'Makefile').read_text(), re.M)
  own = ['--task=images', '--data_dir=photos', '--split=class', '--algorithm=fedss']
  for words in (
    demo[1].split(),
    ['launch.train', *own, '--run_dir=runs/photos/fedss'],
    *documents.commands(page),
  ):
    short = ['--rounds=1'] if words[0] == 'launch.train' else []
    done = processes.python(
      '-m', *words, *short, env=os.environ | {'PYTHONPATH': str(documents.ROOT)}, timeout=600
    )
    assert not done.returncode, (words, done.stderr[-2000:])
  assert (tmp_path / 'neighbors.png').exists()
  assert len((tmp_path / 'classes.csv').read_text().splitlines()) > 36
  names = {}
  exec(program, names)
  assert names['found']['classes'].shape == (1, 5)
