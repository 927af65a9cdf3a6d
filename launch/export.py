"""Exports the model of a run to a file that other programs can read.

  python -m launch.export --run_dir=runs/demo --output=models/demo

An exported model takes raw inputs: photographs of any size, rows of numbers, sparse text or
characters. The model returns the best classes, their scores and the embedding. The command also
writes model.json and README.md, which describe inputs and outputs, and classes.csv with the
names of the classes. The command needs the data of the run only for --calibrate.

--format is one of
  saved_model  for TensorFlow
  tflite       for phones, by TensorFlow Lite; takes photographs of one size only
  onnx         for other runtimes; the export needs the package tf2onnx
  npz          only the weights by name, for NumPy
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import sys
import tempfile
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from absl import flags

from launch import app, onnx_format, settings
from tasks import configuration, registry as tasks
from tff_xc import environment, errors, files, wording
from tff_xc.data import description as description_lib
from tff_xc.lazy import np, pd, tf
from tff_xc.report import run_files, text_table

if TYPE_CHECKING:
  from launch import trained
  from tff_xc import classifier, predictor as predictor_lib

CARD, README = 'model.json', 'README.md'
_MADE_BY = 'launch.export'
# The name of the model file for each format. A SavedModel is the folder itself.
FILES = {'tflite': 'model.tflite', 'onnx': 'model.onnx', 'npz': 'model.npz'}
# For these kinds of data, networks need operations that TensorFlow Lite itself does not have:
# sparse products and arrays of LSTM states.
_SELECT = (description_lib.SPARSE, description_lib.CHARACTERS)


def main(arguments) -> None:
  values = flags.FLAGS
  for name, what in (('run_dir', 'the directory of a run'), ('output', 'the folder to write')):
    if not values[name].value:
      raise errors.InputError(f'--{name} is missing: {what}')
  how = f'--format={values.format}'
  if values.format != 'tflite':
    settings.refuse(['quantize'], f'does not apply with {how}, only with --format=tflite')
  if values.format == 'npz':
    settings.refuse(['top'], f'does not apply with {how}, which has only weights; leave it out')
  calibrate = settings.calibration()
  settings.check_of('calibrate', [*settings.MOVED])
  run(
    values.run_dir,
    values.output,
    values.format,
    round_wanted=values.round,
    top=values.top,
    quantize=values.quantize or '',
    named=settings.named(),
    calibrate=calibrate,
  )


def run(
  run_dir: str,
  output: str,
  form: str = 'saved_model',
  *,
  round_wanted: str = 'chosen',
  top: int = 5,
  quantize: str = '',
  named: Mapping[str, str] | None = None,
  calibrate: tuple[int, int, float | None] | None = None,
) -> dict[str, Any]:
  """Exports a model; returns the content of model.json. The arguments are the flags."""
  path = pathlib.Path(output)
  if path.name in ('', '..') or (os.path.lexists(path) and not _is_export(path)):
    raise errors.InputError(
      f'--output={path} exists, and holds more than an earlier export; name a new folder'
    )
  found, how = _model(run_dir, form, round_wanted, named, calibrate)
  with _folder(path) as folder:
    more = write(found, folder, form, top=top, quantize=quantize)
    card = _card(found, form, top, quantize) | more
    card['calibrate'] = how
    card['bytes'] = sum(_sizes(folder).values())
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
    print(f'it takes images of {size} pixels only, unlike other formats: scale images before')
  return card


def _model(
  run_dir: str, form: str, round_wanted: str, named, calibrate
) -> tuple[trained.Trained, dict[str, Any] | None]:
  """Returns the model to export, and the settings of its calibration or None."""
  from launch import trained

  config = run_files.read_run(run_dir, needs_metrics=False).config
  if not calibrate:
    found = trained.load(run_dir, round_wanted, named)
    if form != 'npz':
      trained.check_rows(
        config,
        "give --calibrate, which trains the server's rows on features of all clients, or"
        ' --format=npz for the weights alone',
      )
    return found, None
  if configuration.is_private(config):
    raise errors.InputError(
      f'--calibrate puts exact statistics of the clients into the model, and {run_dir}'
      ' is a private run, whose epsilon does not cover them; leave it out'
    )
  # `restore` comes first, because it installs the runtime.
  chosen = trained.round_of(run_dir, round_wanted, warns=True)
  before = trained.restore(run_dir, named, chosen)
  # Calibration takes long, and the run may write newer checkpoints in the meantime.
  found = trained.load(run_dir, str(before.rounds), named)
  restored, how = trained.calibrated(before, *calibrate)
  scores = restored.evaluator(restored.weights)
  return found._replace(weights=restored.weights, scores=scores), dataclasses.asdict(how)


# -- the folder --


def _is_export(path: pathlib.Path) -> bool:
  """Whether a folder is empty, or contains only an unchanged export."""
  with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
    if not path.is_symlink() and not any(path.iterdir()):
      return True
    card = files.read_json(path / CARD)
    # If the size of a file differs, someone has edited the file.
    ours = {**card['files'], CARD: (path / CARD).stat().st_size}
    is_whole = _sizes(path).items() <= ours.items()
    return card['made_by'] == _MADE_BY and is_whole and not path.is_symlink()
  return False


@contextlib.contextmanager
def _folder(path: pathlib.Path) -> Iterator[pathlib.Path]:
  """Yields a new folder, which replaces `path` if the block succeeds."""
  try:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f'.{path.name}.', dir=path.parent) as temporary:
      folder = pathlib.Path(temporary) / path.name
      folder.mkdir()
      yield folder
      old = pathlib.Path(temporary) / f'{path.name}.old'
      if path.exists():  # Deleting takes longer than renaming, so it comes last.
        path.rename(old)
      try:
        folder.rename(path)
      except BaseException:
        if old.exists():
          old.rename(path)
        raise
  except (OSError, tf.errors.OpError) as e:
    why = getattr(e, 'strerror', None) or str(e).splitlines()[0]
    raise errors.InputError(
      f'--output={path} cannot be written ({why}); mend that, or name another folder'
    ) from e


def _sizes(folder: pathlib.Path) -> dict[str, int]:
  """Returns the sizes of all files in bytes, by name; empty folders have the size 0."""
  return {
    str(path.relative_to(folder)): path.lstat().st_size * (not path.is_dir())
    for path in sorted(folder.rglob('*'))
    if path.is_symlink() or not path.is_dir() or not any(path.iterdir())
  }


# -- the formats --


def write(
  found: trained.Trained, folder: pathlib.Path, form: str, *, top: int = 5, quantize: str = ''
) -> dict[str, Any]:
  """Writes only the model file; returns its entries for model.json."""
  from tff_xc import predictor as predictor_lib

  kind, more = found.description.kind, {}
  with files.plain(folder) as plain:
    if form == 'npz':
      return {'arrays': _write_arrays(found.weights, plain / FILES['npz'])}
    # A phone scales images better than this model would. Tensors of a fixed size are faster.
    of_lite = {'any_size': False, 'rows_type': tf.float32}
    predictor = predictor_lib.Predictor(
      found.model, found.weights, found.description, top, **(of_lite if form == 'tflite' else {})
    )
    if form == 'saved_model':
      _save(predictor, plain, kind)
    elif form == 'onnx':
      onnx_format.write(predictor.predict, plain / FILES['onnx'])
    else:
      more['select_tf_ops'] = kind in _SELECT
      _write_tflite(predictor, plain, kind, quantize)
  inputs = {
    spec.name: {'shape': [*spec.shape], 'dtype': spec.dtype.name} for spec in predictor.signature()
  }
  return {'inputs': inputs, **more}


def _write_arrays(weights: classifier.ModelWeights, file: pathlib.Path) -> dict[str, list[int]]:
  """Writes the weights by name; returns their shapes."""
  from tff_xc.experiment import storage

  encoder = dict(weights.encoder) | dict(weights.tables)
  named = {'class_rows': encoder.pop('class')}
  named |= {f'encoder/{name}': value for name, value in encoder.items()}
  named |= {f'state/{name}': v for name, v in weights.encoder_state.items()}
  arrays = {name: np.asarray(value) for name, value in named.items()}
  storage.write_arrays(file, arrays)
  return {name: [*array.shape] for name, array in arrays.items()}


def _save(predictor: predictor_lib.Predictor, folder, kind: str) -> None:
  # The LSTM's gradients refer to tensors of their graph, so they cannot be saved.
  gradients = kind != description_lib.CHARACTERS
  tf.saved_model.save(
    predictor,
    os.fspath(folder),
    signatures={'serving_default': predictor.predict},
    options=tf.saved_model.SaveOptions(experimental_custom_gradients=gradients),
  )


def _write_tflite(
  predictor: predictor_lib.Predictor, folder: pathlib.Path, kind: str, quantize: str
) -> None:
  from tff_xc import predictor as predictor_lib

  lite = predictor_lib.lite
  try:
    with tempfile.TemporaryDirectory(dir=folder) as saved:
      _save(predictor, saved, kind)
      converter = lite.TFLiteConverter.from_saved_model(saved)
      if quantize:
        converter.optimizations = [lite.Optimize.DEFAULT]
      if quantize == 'float16':
        converter.target_spec.supported_types = [tf.float16]
      if kind in _SELECT:
        ops = lite.OpsSet
        converter.target_spec.supported_ops = [ops.TFLITE_BUILTINS, ops.SELECT_TF_OPS]
        converter._experimental_lower_tensor_list_ops = False
      data = converter.convert()
  except Exception as e:  # The converter's exceptions are in no public module.
    why = str(e).strip().splitlines() or [repr(e)]
    raise errors.InputError(
      f'--format=tflite: TensorFlow Lite cannot convert this network ({why[-1][:200]});'
      ' give another --format'
    ) from e
  (folder / FILES['tflite']).write_bytes(data)


# -- the card --


def _card(found: trained.Trained, form: str, top: int, quantize: str) -> dict[str, Any]:
  """Returns the entries of model.json that all formats have.

  For a private run, an entry depends on the data only if the noise of the training protects it;
  see docs/privacy.md.
  """
  config, model = found.config, found.model
  description = dataclasses.asdict(found.description)
  if configuration.is_private(config):
    values = config['hyperparameters']
    for name in description_lib.OF_CLIENTS:
      del description[name]
    of_data = {
      'privacy': {
        'epsilon': found.epsilon,
        'delta': values['dp_delta'],
        'dp': values['dp'],
        'noise_seed': values.get('dp_noise_seed', 'public'),
      }
    }
  else:
    of_data = {'seed': config['seed'], 'scores': found.scores, 'data': config.get('data', {})}
  return {
    'made_by': _MADE_BY,
    'format': form,
    'quantize': quantize or None,
    'task': config['task'],
    'algorithm': config['algorithm'],
    'rounds': found.rounds,
    'parameters': sum(int(tf.size(w)) for w in tf.nest.flatten(found.weights)),
    'num_classes': model.num_classes,
    'named_classes': found.class_names is not None,
    'embedding_dim': model.encoder.embedding_dim,
    'top': min(top, model.num_classes),
    'head': type(model.head).__name__,
    'data_licence': tasks.get(config['task']).licence,
    'versions': environment.describe()['versions'],
    'description': description,
    **of_data,
  }


_RAW = {
  description_lib.IMAGES: 'uint8 pixels of images of one size, [B, {dims}]; the model'
  ' scales and crops them as in training',
  description_lib.ROWS: 'rows of numbers as in the table, [B, {shape[0]}]; the model'
  ' standardizes them',
  description_lib.SPARSE: 'sparse features in compressed rows: ids below {features},'
  ' their values, and row_splits from 0 to the number of ids, one more than there are examples',
  description_lib.CHARACTERS: 'ASCII codes of {shape[0]} characters; a character'
  ' outside the alphabet counts as a space',
}
_HISTORIES = (
  'previous items of users, in compressed rows: ids are places in `classes.csv`; the last'
  ' {history} items of each user have the values 1, 1/2, 1/3, ..., the newest item first;'
  ' row_splits go from 0 to the number of ids, one more than there are users. The results may'
  ' include items that the user already has'
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
  """Returns the sentence of the README about privacy."""
  if told['noise_seed'] == 'public':
    return (
      '**Not private**: the noise follows from a public seed (`--dp_noise_seed=public`),'
      ' so anybody can subtract it.'
    )
  if told['epsilon'] is None:
    return '**Trained with differential privacy**; its epsilon was not measured.'
  return (
    f'**Trained with differential privacy** (`--dp={told["dp"]}`), with clients as the'
    f' unit: epsilon {told["epsilon"]:.3g} at delta {told["delta"]:g}.'
  )


def _readme(card: Mapping[str, Any]) -> str:
  """Returns the text of README.md, which describes the entries of model.json in words."""
  about = card['description']
  shape = about['shape']
  how = about['preprocessing']
  raw = (_HISTORIES if 'history' in how else _RAW[about['kind']]).format(
    shape=shape,
    history=how.get('history'),
    dims='height, width, channels' if len(shape) == 3 else 'height, width',
    features=how.get('num_features', 0),
  )
  if card['format'] == 'tflite' and about['kind'] == description_lib.IMAGES:
    raw = f'uint8 images of {" x ".join(map(str, shape))} pixels; scale other images to this size'
  arguments = ', '.join(f'{name}={name}' for name in card.get('inputs', {}))
  means = [
    f'**It takes** {raw}.',
    f'**It returns** `classes`, the {card["top"]} best classes of each example, best first;'
    ' `scores`, their logits (for hashed labels, the mean or median over their'
    f' buckets); and `embedding`, {wording.count(card["embedding_dim"], "number")}.',
  ]
  if card['format'] == 'npz':
    means = ['**It has** the arrays that `model.json` lists.']
  if card['named_classes']:
    means.append('`classes.csv` has the names of the classes.')
  if card.get('select_tf_ops'):
    means.append('It needs TensorFlow Lite with Select TF ops.')
  if 'privacy' in card:
    means.append(_privacy(card['privacy']))
  scores = []
  if card.get('scores'):
    rows = [[name, f'{value:.4f}'] for name, value in card['scores'].items()]
    scores = [text_table.to_markdown([['score', 'after these rounds'], *rows])]
  form = ' of '.join(filter(None, [card['format'], card['quantize']]))
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
      f'Licence of the data: {card["data_licence"] or "unknown to this program"}.'
      ' `model.json` has further facts.',
      '',
    ]
  )


if __name__ == '__main__':
  # Flags are not defined at import, because other commands have flags with the same names.
  flags.DEFINE_string('run_dir', None, 'directory of the run to export')
  flags.DEFINE_string(
    'output', None, 'folder to write: a new one, or one that contains only an earlier export'
  )
  flags.DEFINE_enum('format', 'saved_model', ('saved_model', *FILES), 'format of the model file')
  flags.DEFINE_string(
    'round',
    'chosen',
    'checkpoint to export. chosen: the best round if the run chose it by a validation or client'
    ' score and without --dp, otherwise the last round; last: the last round; best: the round with'
    " the best score of --best_by (if the run did not measure this score: of the task's main"
    ' score); or the number of a round. A run keeps its last three checkpoints and the best one',
  )
  flags.DEFINE_integer(
    'top', 5, 'number of best classes that the model returns for an input', lower_bound=1
  )
  flags.DEFINE_enum(
    'quantize',
    None,
    ('float16', 'int8'),
    'format of the weights in a tflite file. int8 is dynamic range quantization, which needs no'
    ' examples',
  )
  settings.define_named_flags(
    encoder='network of the run, if it has the form MODULE:FUNCTION', **settings.MOVED
  )
  settings.define_calibration_flags('the model is written')
  settings.define_cache_flag()
  app.run(main, __doc__, takes_arguments=False)
