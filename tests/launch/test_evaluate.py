"""`launch.evaluate` on runs of every kind of task, and on foreign runs.

The checkpoint of a run is its initial state, so tests train nothing.
"""

import contextlib
import dataclasses
import json
import shutil
import sys

import numpy as np
import pytest
import tensorflow_federated as tff

from launch import evaluate, export, trained
from tasks import configuration, experiment
from tests.datasets.leaf import on_disk as leaf_on_disk
from tests.launch import own_examples
from tff_xc import errors, files
from tff_xc.data import fingerprint
from tff_xc.experiment import checkpoints
from tff_xc.report import run_files
from tff_xc.round import process as process_lib
from tff_xc.runtime import registry as runtimes

_GLYPHS = {
  'num_classes': 10,
  'num_clients': 4,
  'embedding_dim': 4,
  'examples_per_client': 6,
  'classes_per_client': 3,
}
_WORDS = {'num_classes': 10, 'num_features': 32, 'num_clients': 5, 'hidden_dim': 4}


_BUILD_NEXT = process_lib._build_next


@contextlib.contextmanager
def without_rounds():
  """Leaves out the computation of a round, which takes seconds to trace."""

  def build_next(algorithm, aggregate, fixed, state_type):
    @tff.federated_computation(
      tff.FederatedType(state_type, tff.SERVER), tff.FederatedType(np.int32, tff.CLIENTS)
    )
    def nothing(state, examples):
      del examples
      return tff.learning.templates.LearningProcessOutput(state, state.round_number)

    return nothing

  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(process_lib, '_build_next', build_next)
    yield


@pytest.fixture
def here(in_process, tmp_path, monkeypatch):
  """Works in an empty directory, with one runtime for all runs, and without rounds."""
  monkeypatch.chdir(tmp_path)
  monkeypatch.setattr(runtimes, 'install', lambda *_, **__: in_process)
  with without_rounds():
    yield tmp_path


@pytest.fixture
def rounds(here):
  """Allows a test with `here` to train rounds."""
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(process_lib, '_build_next', _BUILD_NEXT)
    yield


_initial = {}  # By configuration and data.


def untrained(path, task, algorithm='fedavg', **changes):
  """Writes a run whose checkpoint of round 1 is the initial state."""
  config = configuration.resolve(task, algorithm, {'rounds': 1, **changes})
  made = experiment.assemble(config)
  data = fingerprint.fingerprint(made.dataset)
  # Tests share initial states, because to build a process takes half a second.
  key = json.dumps([config, data])
  if key not in _initial:
    with without_rounds():
      _initial[key] = process_lib.build_process(made.algorithm, config['seed']).initialize()
  path.mkdir()
  checkpoints.prepare(path)
  checkpoints.save(path, _initial[key], 1)
  config['data'] = data
  files.write_json(path / run_files.DESCRIPTION, dataclasses.asdict(made.dataset.description))
  files.write_json(path / run_files.CONFIG, config)
  (path / run_files.METRICS).write_text('round,loss\n1,0.5\n')
  return path


def _images(folder):
  own_examples.npz(folder)
  return {'data_dir': 'mine.npz', 'embedding_dim': 4}


def _table(folder):
  own_examples.items(folder)
  return {
    'data_dir': 'items.csv',
    'test_column': 'part',
    'label_column': 'item',
    'user_column': 'user',
    'hidden_dim': 4,
    'embedding_dim': 4,
  }


def _text(folder):
  own_examples.text(folder)
  return {'data_dir': 'train.txt', 'test_file': 'test.txt', 'hidden_dim': 4}


def _shakespeare(folder):
  content = {f'u{i}': (['a' * 80, 'b' * 80] * 4, [*'bacd'] * 2) for i in range(4)}
  leaf_on_disk.write(folder / 'shakespeare' / 'all_data.json', content)
  return {'data_dir': str(folder), 'min_examples': 1}


# A task, an algorithm, and a function from a folder to settings. Cases that others cover are slow.
_KINDS = {
  'one label': ('glyphs', 'fedss', lambda _: _GLYPHS),
  'label sets': ('sparse-words-sets', 'fedavg', lambda _: _WORDS),
  'hashed labels': (
    'sparse-words-sets',
    'fedmlh',
    lambda _: {**_WORDS, 'hash_tables': 2, 'hash_buckets': 4},
  ),
  'sparse text': ('sparse-text', 'fedavg', _text),
  'sparse text with sets': (
    'sparse-text-sets',
    'fedavg',
    lambda folder: {**_text(folder), 'num_clients': 2},
  ),
  'table': ('table', 'fedavg', _table),
  'images': ('images', 'fedir', _images),
  'sequences': ('shakespeare', 'fedavg', _shakespeare),
  'without clients': ('glyphs', 'centralized', lambda _: _GLYPHS),
}


@pytest.mark.parametrize(
  'kind', [pytest.param(kind, marks=[pytest.mark.slow] * (kind != 'one label')) for kind in _KINDS]
)
def test_every_kind_of_run(kind, here, blank_pictures, capsys):
  task, algorithm, made = _KINDS[kind]
  path = untrained(here / 'run', task, algorithm, **made(here))
  result = evaluate.run(str(path))
  assert json.loads((path / 'evaluation.json').read_text()) == result
  assert np.isfinite(list(result['metrics'].values())).all()
  said = capsys.readouterr().out
  if task.endswith('-sets'):
    assert 'p@1' in result['metrics']
    assert not (path / 'confusion.png').exists()
    with pytest.raises(errors.InputError, match='sets of labels'):
      evaluate.run(str(path), '0')
    return
  # The data 'table' say which client owns each test example.
  part = 'test' if kind == 'table' else 'training'
  assert f'client_{part[:5]}_top1' in said
  assert (path / 'confusion.png').exists()
  heading = (path / 'confusion.csv').read_text().split(',')[0]
  for text in (said, heading):
    assert f'the {part} examples of client' in text


_OWN_NETWORK = """
import pathlib
import tensorflow as tf
pathlib.Path('OWNED').touch()

def network(shape):
  pixels = tf.keras.Input(shape)
  return tf.keras.Model(pixels, tf.keras.layers.Dense(4)(
    tf.keras.layers.Flatten()(pixels)))
"""


def test_code_that_a_directory_names_does_not_run(here, monkeypatch):
  monkeypatch.syspath_prepend(str(here))
  own = 'network_of_test_evaluate:network'
  (here / 'network_of_test_evaluate.py').write_text(_OWN_NETWORK)
  own_examples.npz(here)
  path = untrained(here / 'run', 'images', encoder=own, data_dir='mine.npz')
  (here / 'OWNED').unlink()
  sys.modules.pop('network_of_test_evaluate')
  for given, word in (({}, '--encoder=.* again'), ({'encoder': 'small'}, 'run with the')):
    with pytest.raises(errors.InputError, match=word):
      evaluate.run(str(path), None, given)
  assert not (here / 'OWNED').exists()
  assert not (path / 'evaluation.json').exists()
  evaluate.run(str(path), None, {'encoder': own})
  assert (here / 'OWNED').exists()


@pytest.fixture(scope='module')
def glyphs(in_process_context, tmp_path_factory):
  """A run that tests only read or copy."""
  tff.framework.set_default_context(in_process_context)
  return untrained(tmp_path_factory.mktemp('runs') / 'glyphs', 'glyphs', 'fedss', **_GLYPHS)


@pytest.mark.parametrize(
  ('change', 'word'),
  [
    (lambda c: c['options'].update(num_classes='10'), '--num_classes'),
    (lambda c: c['options'].update(num_classes=[10]), '--num_classes'),
    (lambda c: c['options'].update(num_classes={'a': 1}), '--num_classes'),
    (lambda c: c['options'].update(colour='red'), '--colour'),
    (lambda c: c['hyperparameters'].update(negatives=-1), '--negatives'),
    (lambda c: c.update(runtime='cloud'), '--runtime'),
    (lambda c: c.update(seed=2**40), '--seed'),
    (lambda c: c.update(task='mnist'), 'mnist'),
    (lambda c: c['options'].update(split='/etc/passwd'), '--split'),
    (lambda c: c['options'].update(test_file='/x'), '--test_file'),
    (lambda c: c.update(options=None), 'other data'),
    (lambda c: c['options'].update(encoder=[]), '--encoder'),
    (lambda c: c.update(options={}), 'other data|another model'),
    (lambda c: c['data'].update(classes=[[]]), 'other data'),
  ],
)
def test_an_edited_config_is_refused_in_a_sentence(change, word, glyphs, here):
  path = shutil.copytree(glyphs, here / 'run')
  config = json.loads((path / run_files.CONFIG).read_text())
  change(config)
  (path / run_files.CONFIG).write_text(json.dumps(config))
  with pytest.raises(errors.InputError, match=word) as e:
    evaluate.run(str(path))
  assert '\n' not in str(e.value)
  assert not (path / 'evaluation.json').exists()


def test_without_held_out_examples_of_clients_nothing_is_written(glyphs, here):
  path = shutil.copytree(glyphs, here / 'run')
  before = sorted(path.rglob('*'))
  with pytest.raises(errors.InputError, match='client_test_fraction'):
    evaluate.run(str(path), per_client=True)
  assert sorted(path.rglob('*')) == before


def test_other_data_are_refused_and_nothing_changes(here, blank_pictures):
  def contents():
    return {str(p.relative_to(path)): p.read_bytes() for p in path.rglob('*') if p.is_file()}

  def run(data):
    return evaluate.run(str(path), None, {'data_dir': data})

  path = untrained(here / 'run', 'images', 'posonly', **_images(here))
  (here / 'mine.npz').rename(here / 'moved.npz')
  arrays, before = dict(np.load('moved.npz')), contents()
  for change, told in (
    ({'x': 255 - arrays['x']}, 'train_checksum was '),
    ({'y': arrays['y'] + 1}, 'classes was 4 and is 5, '),
  ):
    np.savez('other.npz', **arrays | change)
    with pytest.raises(errors.InputError, match=f'other data: {told}'):
      run('other.npz')
  assert contents() == before
  assert run('moved.npz')['rounds'] == 1
  assert contents().keys() == before.keys() | {'confusion.csv', 'confusion.png', 'evaluation.json'}
  assert before.items() <= contents().items()
  # A damaged checkpoint stays in the run directory.
  (path / 'checkpoints' / 'round_1.npz').write_bytes(b'')
  before = contents()
  with pytest.raises(errors.InputError, match='has no sound checkpoint'):
    run('moved.npz')
  assert contents() == before


@pytest.mark.slow
def test_calibrated_class_rows_know_the_classes_of_an_untrained_run(here):
  changes = {
    **_GLYPHS,
    'num_clients': 10,
    'examples_per_client': 12,
    'embedding_dim': 16,
    'negatives': 3,
  }
  path = untrained(here / 'run', 'glyphs', 'fedss', **changes)

  def run(calibrate):
    return evaluate.run(str(path), calibrate=calibrate)['metrics']['top1']

  before, after = run(None), run((60, 10, 0.5))
  assert after > before + 0.2
  told = json.loads((path / 'evaluation.json').read_text())['calibrate']
  assert told == {'features': 60, 'epochs': 10, 'learning_rate': 0.5}
  assert run((60, 10, None)) != before
  with pytest.raises(errors.InputError, match='calibrate_learning_rate'):
    run((60, 10, 1e38))
  # The export contains the same rows, and model.json contains their scores.
  card = export.run(str(path), 'rows', 'npz', calibrate=(60, 10, 0.5))
  assert card['scores']['top1'] == after
  assert card['calibrate'] == told
  assert 'CCVR' in (here / 'rows' / 'README.md').read_text()
  found = trained.restore(str(path))
  rows = np.load('rows/model.npz')['class_rows']
  wanted = trained.calibrated(found, 60, 10, 0.5)[0].weights.class_table
  np.testing.assert_array_equal(rows, wanted)
  assert np.abs(rows - found.weights.class_table).max() > 0.1
  broken = found.weights._replace(encoder={n: w * np.nan for n, w in found.weights.encoder.items()})
  with pytest.raises(errors.InputError, match='embeddings'):
    trained.calibrated(found._replace(weights=broken), 60, 10, 0.5)


def test_sets_of_labels_cannot_be_calibrated(here):
  path = untrained(here / 'run', 'sparse-words-sets', **_WORDS)
  with pytest.raises(errors.InputError, match='--calibrate'):
    evaluate.run(str(path), calibrate=(5, 1, None))
