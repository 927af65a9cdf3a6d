"""`launch.export`: exported models compute the same as `launch.evaluate`, from raw examples.

The checkpoint of a run is its initial state, so tests train nothing.
"""

import importlib.util
import pathlib
import shutil
import sys

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from PIL import Image

from datasets.procedural import words
from datasets.readers import decode
from launch import export, prediction, trained
from tasks import configuration, experiment
from tests.launch import light, test_evaluate
from tff_xc import errors, predictor
from tff_xc.data import sparse
from tff_xc.experiment import ccvr, checkpoints

here = test_evaluate.here
rounds = test_evaluate.rounds


def _unhashed(dataset):
  shape = {n: test_evaluate._WORDS[n] for n in ('num_classes', 'num_features')}
  return _features(words.Words(words.Options(**shape)).everything(words.TEST)[0])


def _features(matrix):
  return dict(zip(('row_splits', 'ids', 'values'), sparse.as_tensors(matrix), strict=True))


# A kind of run of `test_evaluate`, other settings, a function from the data set to raw examples,
# and the part of the data that contains them.
_RAW = {
  'one label': ({}, lambda dataset: {'images': dataset.test.read(np.arange(20))}, 'test'),
  'table': (
    {},
    lambda _: {'rows': pd.read_csv('items.csv')[['a', 'b', 'c']].to_numpy()},
    'train',
  ),
  'sparse text': (
    {},
    lambda dataset: _features(dataset.test.read(np.arange(len(dataset.test)))),
    'test',
  ),
  'hashed labels': (
    {
      'hash_tables': 3,
      'hash_buckets': 4,
      'hashed_features': 8,
      'bucket_score': 'median',  # `test_predict` exports the mean.
    },
    _unhashed,
    'test',
  ),
  'sequences': ({}, lambda _: {'characters': np.full([1, 80], ord('a'), np.uint8)}, 'train'),
}


def exported(kind, here):
  """Returns (raw examples, logits of the evaluation, a run's folder)."""
  changes, raw, part = _RAW[kind]
  task, algorithm, made = test_evaluate._KINDS[kind]
  given = {**made(here), **changes}
  path = test_evaluate.untrained(here / 'run', task, algorithm, **given)
  found = trained.restore(str(path))
  examples = raw(found.dataset)
  pool = found.dataset.test if part == 'test' else found.dataset.train.pool
  count = len(examples.get('row_splits', ())) - 1
  count = count if count > 0 else len(next(iter(examples.values())))
  embeddings = found.evaluator.embeddings(found.weights, pool, np.arange(count))
  head, table = found.algorithm.model.head, found.weights.class_table
  if hasattr(head, 'label_scores'):
    return examples, tf.transpose(head.label_scores(embeddings, table)), path
  return examples, head.logits(embeddings, table, None), path


def ranked(found, num_classes):
  """Returns the logits of all classes from a model that returns all of them in ranked order."""
  logits = np.zeros([len(found['classes']), num_classes])
  np.put_along_axis(logits, np.array(found['classes']), np.array(found['scores']), axis=1)
  return logits


@pytest.mark.slow
@pytest.mark.parametrize('kind', _RAW)
def test_files_give_the_logits_of_the_evaluation(kind, here):
  raw, logits, path = exported(kind, here)

  def check(found):
    np.testing.assert_allclose(ranked(found, n), logits, rtol=0, atol=1e-4)
    assert len(found['embedding']) == len(logits)

  card, n = export.run(str(path), 'saved', top=1000), logits.shape[1]
  loaded = tf.saved_model.load('saved').signatures['serving_default']
  assert card['inputs'].keys() == raw.keys()
  assert (card['rounds'], card['num_classes'], card['data']['classes']) == (1, n, n)
  found = loaded(**{name: tf.constant(x) for name, x in raw.items()})
  check(found)
  assert np.all(np.diff(found['scores']) <= 0)
  export.run(str(path), 'lite', 'tflite', top=1000)
  lite = predictor.lite.Interpreter('lite/model.tflite').get_signature_runner()
  types = {n: d['dtype'] for n, d in lite.get_input_details().items()}
  check(lite(**{name: x.astype(types[name]) for name, x in raw.items()}))
  export.run(str(path), 'numbers', 'npz')
  with np.load(checkpoints.path_of(path, 1)) as saved, np.load('numbers/model.npz') as arrays:
    np.testing.assert_array_equal(arrays['class_rows'], saved['weights/tables/class'])
  if kind != 'sequences' and importlib.util.find_spec('tf2onnx'):
    export.run(str(path), 'onnx', 'onnx', top=1000)
    session = pytest.importorskip('onnxruntime').InferenceSession('onnx/model.onnx')
    names = [output.name for output in session.get_outputs()]
    check(dict(zip(names, session.run(None, raw), strict=True)))


def test_a_folder_whose_name_looks_like_a_pattern(here):
  raw, logits, path = exported('table', here)
  output = 'lr=[0.1] a*b? {x} %20 #\\z "ü" \udcfc'
  export.run(str(path), output, 'tflite', top=1000)
  found = prediction.of_file(output).predict(*raw.values())
  np.testing.assert_allclose(ranked(found, logits.shape[1]), logits, rtol=0, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize('kind', ['one label', 'sparse text', 'hashed labels'])
def test_no_examples_have_no_classes(kind, here):
  raw, _, path = exported(kind, here)
  export.run(str(path), 'saved', top=3)
  loaded = tf.saved_model.load('saved').signatures['serving_default']
  nothing = {name: x[: name == 'row_splits'] for name, x in raw.items()}
  found = loaded(**{name: tf.constant(x) for name, x in nothing.items()})
  assert found['classes'].shape == found['scores'].shape == (0, 3)
  assert len(found['embedding']) == 0


@pytest.mark.slow
def test_int8_hardly_changes_what_is_recognised(here, rounds):
  changes = {
    **test_evaluate._GLYPHS,
    'examples_per_client': 200,
    'rounds': 40,
    'embedding_dim': 32,
    'classes_per_client': 10,
    'eval_every': 40,
    'clients_per_round': 4,
  }
  experiment.assemble(configuration.resolve('glyphs', 'fedavg', changes)).run('run')
  test = trained.restore('run').dataset.test
  x, top1, sizes = test.read(np.arange(len(test))), {}, {}
  for quantize in ('', 'float16', 'int8'):
    card = export.run('run', quantize or 'whole', 'tflite', quantize=quantize)
    lite = predictor.lite.Interpreter(f'{quantize or "whole"}/model.tflite')
    classes = lite.get_signature_runner()(images=x)['classes']
    top1[quantize], sizes[quantize] = (np.mean(classes[:, 0] == test.labels), card['bytes'])
  assert top1[''] > 0.5
  assert abs(top1['int8'] - top1['']) <= 0.005
  assert abs(top1['float16'] - top1['']) <= 0.005
  assert sizes['int8'] < 0.6 * sizes['']


@pytest.mark.parametrize(
  ('height', 'width', 'channels'),
  [(30, 41, 3), (97, 64, 1), (16, 16, 4), (311, 263, 3), (9, 12, 3)],
)
def test_images_of_any_size_are_fitted_as_at_reading(height, width, channels):
  shape = (height, width, channels)[: 2 if channels == 1 else 3]
  x = np.random.default_rng(1).integers(0, 256, shape).astype(np.uint8)
  for side in (16, 64):
    found = predictor.squares(tf.constant(x[None]), side, True)[0]
    np.testing.assert_array_equal(found, decode.fitted_array(x, side))
    if channels == 3:
      found = predictor.squares(tf.constant(x[None]), side, False)[0]
      wanted = Image.fromarray(x).resize((side, side), Image.BICUBIC)
      np.testing.assert_array_equal(found, np.asarray(wanted))


@pytest.fixture
def run(here):
  """Writes a run on glyphs."""
  return test_evaluate.untrained(here / 'run', 'glyphs', 'fedavg', **test_evaluate._GLYPHS)


def test_an_output_that_is_not_ours_alone_stays(run, here):
  export.run(str(run), 'mine', 'npz')
  export.run(str(run), 'mine', 'npz')  # The command replaces an existing export.
  (here / 'mine' / 'thesis.txt').touch()
  (here / 'file').touch()
  (here / 'folder').mkdir()
  (here / 'folder' / 'model.json').write_text('{"files": ["model.json"]}')
  export.run(str(run), 'edited', 'npz')
  with (here / 'edited' / 'README.md').open('a') as file:
    file.write('what I think of it')
  export.run(str(run), 'with_folder', 'npz')
  (here / 'with_folder' / 'mine').mkdir()
  before = sorted(map(str, here.rglob('*')))
  for output in ('mine', 'file', 'folder', 'run', 'edited', 'with_folder', '.'):
    with pytest.raises(errors.InputError, match=r'exists|new folder'):
      export.run(str(run), output, 'npz')
  assert sorted(map(str, here.rglob('*'))) == before


def test_what_fails_leaves_nothing(run, here, monkeypatch):
  before = sorted(map(str, here.rglob('*')))
  monkeypatch.setitem(sys.modules, 'tf2onnx', None)
  monkeypatch.setattr(export, '_save', None)
  for given, output, form, word in (
    ('run', 'model', 'onnx', 'pip install'),
    ('run', 'model', 'tflite', '--format=tflite'),
    ('run', 'run/config.json/model', 'npz', 'cannot be written'),
    ('nowhere', 'model', 'npz', 'no run directory'),
  ):
    with pytest.raises(errors.InputError, match=word):
      export.run(given, output, form)
  checkpoints.path_of(run, 1).write_bytes(b'PK')
  with pytest.raises(errors.InputError, match=r'round_1\.npz is damaged'):
    export.run(str(run), 'model', 'npz')
  assert sorted(map(str, here.rglob('*'))) == before


def test_an_interrupt_while_the_old_export_is_deleted_spares_the_new(run, here, monkeypatch):
  def rmtree(folder, **_):
    for path in pathlib.Path(folder).rglob('*'):
      if path.is_file():
        path.unlink()
    raise KeyboardInterrupt

  export.run(str(run), 'mine', 'npz')
  monkeypatch.setattr(shutil, 'rmtree', rmtree)
  with pytest.raises(KeyboardInterrupt):
    export.run(str(run), 'mine', 'npz')
  assert export._is_export(pathlib.Path('mine'))
  assert (here / 'mine' / 'model.json').is_file()


def test_an_interrupt_between_the_exports_keeps_the_old(run, here, monkeypatch):
  export.run(str(run), 'mine', 'npz')
  rename = pathlib.Path.rename

  def interrupted(path, target):
    if path.parent.name.startswith('.mine.') and path.name == 'mine':
      raise KeyboardInterrupt
    return rename(path, target)

  monkeypatch.setattr(pathlib.Path, 'rename', interrupted)
  with pytest.raises(KeyboardInterrupt):
    export.run(str(run), 'mine', 'npz')
  assert (here / 'mine' / 'model.json').is_file()
  assert [path.name for path in here.iterdir() if path.name.startswith('.mine')] == []


def test_an_empty_folder_may_be_the_output(run, here):
  (here / 'mine').mkdir()
  export.run(str(run), 'mine', 'npz')
  (here / 'empty').mkdir()
  (here / 'link').symlink_to('empty')
  with pytest.raises(errors.InputError, match='new folder'):
    export.run(str(run), 'link', 'npz')


def test_calibrated_weights_have_the_description_of_their_round(run, monkeypatch):
  def calibrated(found, *_):
    # The run goes on in the meantime.
    shutil.copy(checkpoints.path_of(run, 1), checkpoints.path_of(run, 2))
    return found, ccvr.Calibration(1, 1, 0.1)

  monkeypatch.setattr(trained, 'calibrated', calibrated)
  found, _ = export._model(str(run), 'npz', 'last', None, (1, 1, 0.1))
  assert found.rounds == 1


@pytest.mark.parametrize('name', ['data_dir', 'split', 'test_file', 'classes'])
def test_only_calibrating_reads_data(name):
  done = light.call('export', '--run_dir=r', '--output=m', f'--{name}=data')
  light.assert_one_sentence(done, f'--{name} goes with --calibrate')
