"""Writes model files and what describes them. Imports TensorFlow."""

import contextlib
import dataclasses
import os
import pathlib
import shutil
import sys
import tempfile
from collections.abc import Iterator
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import tensorflow as tf

from launch import onnx_format
from launch import trained
from tasks import experiment
from tasks import registry as tasks
from tff_xc import environment
from tff_xc import errors
from tff_xc import files
from tff_xc import predictor as predictor_lib
from tff_xc import wording
from tff_xc.data import description as description_lib
from tff_xc.experiment import storage
from tff_xc.report import run_files

# Its first use binds the name in TensorFlow to another module, see `lazy_imports`.
lite = tf.lite
# Whose networks have operations beyond those of TensorFlow Lite alone: sparse products,
# and arrays of LSTM states.
_SELECT = (description_lib.SPARSE, description_lib.CHARACTERS)
CARD, README = 'model.json', 'README.md'
_MADE_BY = 'launch.export'
# By format, the file in the folder; a SavedModel is the folder itself.
FILES = {'tflite': 'model.tflite', 'onnx': 'model.onnx', 'npz': 'model.npz'}


def run(
  run_dir: str,
  output: str,
  form: str = 'saved_model',
  *,
  round_wanted: str = trained.CHOSEN,
  top: int = 5,
  quantize: str = '',
  named: Mapping[str, str] | None = None,
  calibrate: tuple[int, int, float | None] | None = None,
) -> dict[str, Any]:
  """Exports, and returns the content of model.json; flags are those of `export`."""
  path = pathlib.Path(output)
  _check_output(path)
  of_run = how = None
  if calibrate:  # First, since it installs the runtime.
    if experiment.is_private(
      run_files.read_run(run_dir, needs_metrics=False).config
    ):
      raise errors.InputError(
        f'--calibrate puts exact statistics of the clients into the model, and {run_dir}'
        ' is a private run, whose epsilon does not cover them; leave it out'
      )
    chosen = trained.round_of(run_dir, round_wanted)
    of_run = trained.restore(run_dir, named, chosen)
    of_run, how = trained.calibrated(of_run, *calibrate)
  found = trained.load(run_dir, round_wanted, named)
  if form != 'npz' and not calibrate:
    trained.check_rows(
      found.config,
      "give --calibrate, which trains the server's on features of all clients, or"
      ' --format=npz for the weights alone',
    )
  if of_run:
    scores = of_run.evaluator(of_run.weights)
    found = found._replace(weights=of_run.weights, scores=scores)
  with _folder(path) as folder:
    more = write(found, folder, form, top=top, quantize=quantize)
    card = _card(found, form, top, quantize) | more
    card['calibrate'] = how and dataclasses.asdict(how)
    card['bytes'] = sum(f.stat().st_size for f in _all_files(folder))
    if found.class_names is not None:
      names = pd.Series(found.class_names, name='name')
      with files.csv_rows(folder / run_files.CLASSES) as file:
        names.to_csv(file, index_label='class', lineterminator='\r\n')
    (folder / README).write_text(_readme(card), encoding='utf-8')
    card['files'] = _sizes(folder)
    files.write_json(folder / CARD, card)
  if 'privacy' in card:
    print(_privacy(card['privacy']).replace('*', ''), file=sys.stderr)
  size = wording.human_bytes(card['bytes'])
  print(f'{path}: {form} after {wording.count(found.rounds, "round")}, {size}')
  if form == 'tflite' and found.description.kind == description_lib.IMAGES:
    size = ' x '.join(map(str, found.description.shape[:2]))
    print(
      f'it takes images of {size} pixels, unlike other formats: scale them before'
    )
  return card


def write(
  found: trained.Trained,
  folder: pathlib.Path,
  form: str,
  *,
  top: int = 5,
  quantize: str = '',
) -> dict[str, Any]:
  """Writes only the model file; returns what model.json says of it."""
  with files.plain(folder) as plain:
    return _FORMATS[form](found, plain, top, quantize)


# -- the folder --


def _check_output(path: pathlib.Path) -> None:
  """Refuses a path that holds anything but an earlier export."""
  if path.name in ('', '..'):
    raise errors.InputError(f'--output={path}: name a new folder')
  if not os.path.lexists(path):
    return
  refused = errors.InputError(
    f'--output={path} exists, and is no export of ours alone; name a new folder'
  )
  if path.is_symlink() or not path.is_dir():
    raise refused
  there = _sizes(path)
  if not there:
    return
  try:
    card = files.read_json(path / CARD)
    del there[CARD]
    # A file of another size was edited.
    ours = card['files'].items()
    if card['made_by'] != _MADE_BY or not there.items() <= ours:
      raise refused
  except (OSError, ValueError, KeyError, TypeError, AttributeError) as e:
    raise refused from e


@contextlib.contextmanager
def _folder(path: pathlib.Path) -> Iterator[pathlib.Path]:
  """Yields a new folder that takes the path's place if the block succeeds."""
  temporary = path.with_name(f'.{path.name}.{os.getpid()}.tmp')
  before = path.with_name(f'.{path.name}.{os.getpid()}.old')
  made = [parent for parent in path.parents if not parent.exists()]
  try:
    temporary.mkdir(parents=True)
    yield temporary
    _check_output(path)  # Somebody may have written there meanwhile.
    if path.exists():
      path.rename(before)
    temporary.rename(path)
  except (OSError, tf.errors.OpError) as e:
    why = getattr(e, 'strerror', None) or str(e).splitlines()[0]
    raise errors.InputError(
      f'--output={path} cannot be written ({why}); mend that, or name another folder'
    ) from e
  finally:
    if before.exists() and not path.exists():
      before.rename(path)
    for left in (temporary, before):
      shutil.rmtree(left, ignore_errors=True)
    with contextlib.suppress(OSError):  # The export is in them.
      for parent in made:
        parent.rmdir()


def _all_files(folder: pathlib.Path) -> list[pathlib.Path]:
  return [f for f in folder.rglob('*') if f.is_symlink() or not f.is_dir()]


def _sizes(folder: pathlib.Path) -> dict[str, int]:
  """Returns the bytes of all files, and 0 of empty folders, by their names."""
  found = {f: f.lstat().st_size for f in _all_files(folder)}
  empty = [
    f for f in folder.rglob('*') if f not in found and not any(f.iterdir())
  ]
  found |= dict.fromkeys(empty, 0)
  return {str(f.relative_to(folder)): found[f] for f in sorted(found)}


# -- the formats: (found, folder, top, quantize) -> more of model.json --


def _saved_model(found, folder, top, quantize):
  del quantize
  predictor = _predictor(found, top)
  _save(predictor, folder, found.description.kind)
  return {'inputs': _inputs(predictor)}


def _save(predictor: predictor_lib.Predictor, folder, kind: str) -> None:
  # The LSTM's gradients refer to tensors of the graph that they are of.
  gradients = kind != description_lib.CHARACTERS
  tf.saved_model.save(
    predictor,
    os.fspath(folder),
    signatures={'serving_default': predictor.predict},
    options=tf.saved_model.SaveOptions(experimental_custom_gradients=gradients),
  )


def _tflite(found, folder, top, quantize):
  # Phones scale images better than this would, and tensors of a fixed size are
  # faster.
  predictor = _predictor(found, top, any_size=False, rows_type=tf.float32)
  selects = found.description.kind in _SELECT
  try:
    with tempfile.TemporaryDirectory(dir=folder) as saved:
      _save(predictor, saved, found.description.kind)
      data = _converted(saved, quantize, selects)
  except Exception as e:  # Its own kind, which is in no public module.
    why = str(e).strip().splitlines() or [repr(e)]
    raise errors.InputError(
      f'--format=tflite: TensorFlow Lite cannot convert this network ({why[-1][:200]});'
      ' give another --format'
    ) from e
  (folder / FILES['tflite']).write_bytes(data)
  return {'inputs': _inputs(predictor), 'select_tf_ops': selects}


def _converted(saved: str, quantize: str, selects: bool) -> bytes:
  converter = lite.TFLiteConverter.from_saved_model(saved)
  if quantize:
    converter.optimizations = [lite.Optimize.DEFAULT]
  if quantize == 'float16':
    converter.target_spec.supported_types = [tf.float16]
  if selects:
    converter.target_spec.supported_ops = [
      lite.OpsSet.TFLITE_BUILTINS,
      lite.OpsSet.SELECT_TF_OPS,
    ]
    converter._experimental_lower_tensor_list_ops = False
  return converter.convert()


def _onnx(found, folder, top, quantize):
  del quantize
  predictor = _predictor(found, top)
  onnx_format.write(predictor.predict, folder / FILES['onnx'])
  return {'inputs': _inputs(predictor)}


def _npz(found, folder, top, quantize):
  del top, quantize
  weights = found.weights
  encoder = dict(weights.encoder) | dict(weights.tables)
  rows = encoder.pop('class')
  named = {'class_rows': rows}
  named |= {f'encoder/{name}': value for name, value in encoder.items()}
  named |= {f'state/{name}': v for name, v in weights.encoder_state.items()}
  arrays = {name: np.asarray(value) for name, value in named.items()}
  storage.write_arrays(folder / FILES['npz'], arrays)
  shapes = {name: [*array.shape] for name, array in arrays.items()}
  return {'arrays': shapes}


_FORMATS = {
  'saved_model': _saved_model,
  'tflite': _tflite,
  'onnx': _onnx,
  'npz': _npz,
}


def _predictor(found: trained.Trained, top: int, **more):
  return predictor_lib.Predictor(
    found.model, found.weights, found.description, top, **more
  )


def _inputs(predictor) -> dict[str, Any]:
  return {
    spec.name: {'shape': [*spec.shape], 'dtype': spec.dtype.name}
    for spec in predictor.signature()
  }


# -- the card --


def _card(found: trained.Trained, form: str, top: int, quantize: str) -> dict:
  """Returns what model.json says of any format.

  Of a private run it says nothing that depends on the data, except the model and what
  the noise covers: docs/privacy.md lists every field.
  """
  config, weights = found.config, tf.nest.flatten(found.weights)
  model = found.model
  description = dataclasses.asdict(found.description)
  if experiment.is_private(config):
    values = config['hyperparameters']
    of_data = {
      'description': {
        name: value
        for name, value in description.items()
        if name not in description_lib.OF_CLIENTS
      },
      'privacy': {
        'epsilon': found.epsilon,
        'delta': values['dp_delta'],
        'dp': values['dp'],
        'noise_seed': values.get('dp_noise_seed', 'public'),
      },
    }
  else:
    of_data = {
      'seed': config['seed'],
      'scores': found.scores,
      'description': description,
      'data': config.get('data', {}),
    }
  return {
    'made_by': _MADE_BY,
    'format': form,
    'quantize': quantize or None,
    'task': config['task'],
    'algorithm': config['algorithm'],
    'rounds': found.rounds,
    'parameters': sum(int(tf.size(w)) for w in weights),
    'num_classes': model.num_classes,
    'named_classes': found.class_names is not None,
    'embedding_dim': model.encoder.embedding_dim,
    'top': min(top, model.num_classes),
    'head': type(model.head).__name__,
    'data_licence': tasks.get(config['task']).licence,
    'versions': environment.describe()['versions'],
    **of_data,
  }


_RAW = {
  description_lib.IMAGES: 'uint8 pixels of images of one size, [B, {dims}]; they are'
  ' scaled and cropped as in training',
  description_lib.ROWS: 'rows of numbers as in the table, [B, {shape[0]}]; they are'
  ' standardized inside',
  description_lib.SPARSE: 'sparse features in compressed rows: ids below {features},'
  ' their values, and row_splits from 0 to the number of ids, one more than examples',
  description_lib.CHARACTERS: 'ASCII codes of {shape[0]} characters; a character'
  ' outside the alphabet counts as a space',
}
_HISTORIES = (
  'items that users had, in compressed rows: ids are places in `classes.csv`; of the'
  ' last {history} items of a user, the last one has the value 1, the one before 1/2,'
  ' then 1/3; row_splits go from 0 to the number of ids, one more than users. Items that'
  ' a user has are among the results'
)
_USES = {
  'saved_model': """
import tensorflow as tf
model = tf.saved_model.load('FOLDER').signatures['serving_default']
found = model(ARGUMENTS)  # 'classes', 'scores', 'embedding'
""",
  'tflite': """
import tensorflow as tf
model = tf.lite.Interpreter('FOLDER/model.tflite').get_signature_runner()
found = model(ARGUMENTS)  # 'classes', 'scores', 'embedding'
""",
  'onnx': """
import onnxruntime
model = onnxruntime.InferenceSession('FOLDER/model.onnx')
names = [output.name for output in model.get_outputs()]
found = dict(zip(names, model.run(None, dict(ARGUMENTS))))
""",
  'npz': """
import numpy as np
weights = np.load('FOLDER/model.npz')
rows = weights['class_rows']
""",
}


def _privacy(told: Mapping[str, Any]) -> str:
  """Returns what the README says of a private model."""
  if told['noise_seed'] == 'public':
    return (
      '**Not private**: its noise follows from a public seed (`--dp_noise_seed=public`),'
      ' so that anybody can subtract it.'
    )
  if told['epsilon'] is None:
    return (
      '**Trained with differential privacy**; its epsilon was not measured.'
    )
  return (
    f'**Trained with differential privacy** (`--dp={told["dp"]}`), with clients as the'
    f' unit: epsilon {told["epsilon"]:.3g} at delta {told["delta"]:g}.'
  )


def _readme(card: Mapping[str, Any]) -> str:
  """Returns the card for people."""
  about = card['description']
  shape = about['shape']
  how = about['preprocessing']
  form = _HISTORIES if 'history' in how else _RAW[about['kind']]
  raw = form.format(
    shape=shape,
    history=how.get('history'),
    dims='height, width, channels' if len(shape) == 3 else 'height, width',
    features=how.get('num_features', 0),
  )
  if card['format'] == 'tflite' and about['kind'] == description_lib.IMAGES:
    size = ' x '.join(map(str, shape))
    raw = f'uint8 images of {size} pixels, which have to be scaled before'
  arguments = ', '.join(f'{name}={name}' for name in card.get('inputs', {}))
  means = [
    f'**It takes** {raw}.',
    f'**It returns** `classes`, the {card["top"]} best of each example, best first;'
    ' `scores`, their logits (of hashed labels the mean or median over their'
    f' buckets); and `embedding`, {wording.count(card["embedding_dim"], "number")}.',
  ]
  if card['format'] == 'npz':
    means = ['**It has** the arrays that `model.json` lists.']
  if card['named_classes']:
    means.append('`classes.csv` has the names of the classes.')
  if card.get('select_tf_ops'):
    means.append('It needs TensorFlow Lite with Select TF ops.')
  form = ' of '.join(filter(None, [card['format'], card['quantize']]))
  licence = card['data_licence'] or 'unknown to this program'
  scores = []
  if 'privacy' in card:
    means.append(_privacy(card['privacy']))
  if card.get('scores'):
    scores = ['| score | after these rounds |', '|---|---|']
    scores += [f'| {n} | {value:.4f} |' for n, value in card['scores'].items()]
    scores.append('')
  return '\n'.join(
    [
      f'# {card["task"]}, {card["algorithm"]}',
      '',
      f'A model of {card["num_classes"]:,} classes after'
      f' {wording.count(card["rounds"], "round")} of training'
      f'{" and calibration of its class rows (CCVR)" * bool(card["calibrate"])}:'
      f' {card["parameters"]:,} parameters,'
      f' {wording.human_bytes(card["bytes"])} as {form}.',
      '',
      *scores,
      *(line for text in means for line in (text, '')),
      '```python',
      _USES[card['format']].strip().replace('ARGUMENTS', arguments),
      '```',
      '',
      f'Licence of the data: {licence}. `model.json` has all else.',
      '',
    ]
  )
