"""Compares model files: python -m launch.benchmarks.formats FILE.csv [NETWORK ...].

Exports untrained networks in every format of `launch.export`, and writes a table: the
bytes of the files, milliseconds an example in batches of 32 and alone, and the largest
difference of a logit of all classes from TensorFlow's. ONNX needs tf2onnx and
onnxruntime, and is left out without them.
"""

import importlib.util
import pathlib
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import tensorflow as tf

from datasets.leaf import shakespeare
from launch import export as exporting
from launch import prediction
from launch import trained
from launch.benchmarks import report
from tasks import experiment
from tff_xc import errors
from tff_xc import predictor
from tff_xc import wording
from tff_xc.data import description as description_lib

_BATCH, _CALLS = 32, 9
_CROP = {'fit': 'crop'}


def _described(kind, shape, dtype, classes, sets=False, **how):
  return description_lib.Description(
    kind, shape, dtype, classes, sets, 100, 10, how
  )


# Name -> task, algorithm, changes, data.
NETWORKS = {
  'CNN': (
    'glyphs',
    'fedavg',
    {},
    _described(description_lib.IMAGES, (28, 28), 'uint8', 964, **_CROP),
  ),
  'ResNet-8': (
    'cifar10',
    'fedavg',
    {},
    _described(description_lib.IMAGES, (32, 32, 3), 'uint8', 10, **_CROP),
  ),
  'MobileNetV3': (
    'images',
    'fedavg',
    {'encoder': 'mobilenet_v3', 'data_dir': '.'},
    _described(description_lib.IMAGES, (224, 224, 3), 'uint8', 2028, **_CROP),
  ),
  'LSTM': (
    'shakespeare',
    'fedavg',
    {},
    _described(
      description_lib.CHARACTERS,
      (shakespeare.WINDOW,),
      'uint8',
      shakespeare.NUM_CLASSES,
      alphabet=shakespeare.ALPHABET,
    ),
  ),
  'bag of words': (
    'sparse-words',
    'fedavg',
    {},
    _described(
      description_lib.SPARSE,
      (50_000,),
      'float32',
      1000,
      num_features=50_000,
      hashed=False,
    ),
  ),
  'FedMLH': (
    'sparse-words-eurlex-sets',
    'fedmlh',
    {},
    _described(
      description_lib.SPARSE,
      (300,),
      'float32',
      3993,
      True,
      num_features=5000,
      hashed=True,
    ),
  ),
}
FORMATS = (
  ('saved_model', ''),
  ('tflite', ''),
  ('tflite', 'float16'),
  ('tflite', 'int8'),
  ('onnx', ''),
)


def made(name: str) -> trained.Trained:
  """Returns an untrained network."""
  task, algorithm, changes, description = NETWORKS[name]
  config = experiment.resolve(task, algorithm, changes)
  model = experiment.trained_model(config, description)
  weights = model.init(tf.constant([1, 2]))
  return trained.Trained(config, model, weights, 0, description, None, {})


def raw(
  description: description_lib.Description, count: int
) -> dict[str, np.ndarray]:
  """Returns random examples, by the names of a `Predictor`'s arguments."""
  random, shape = np.random.default_rng(0), description.shape
  if description.kind == description_lib.IMAGES:
    return {'images': random.integers(0, 256, (count, *shape)).astype(np.uint8)}
  if description.kind == description_lib.CHARACTERS:
    codes = random.integers(32, 123, (count, *shape)).astype(np.uint8)
    return {'characters': codes}
  words = 40
  features = description.preprocessing['num_features']
  ids = random.integers(0, features, (count, words)).astype(np.int32)
  return {
    'ids': np.sort(ids, axis=1).ravel(),
    'values': random.random(count * words).astype(np.float32),
    'row_splits': np.arange(0, count * words + 1, words, np.int32),
  }


def logits(found, num_classes: int) -> np.ndarray:
  """Returns [B, n] of a model that returns all classes."""
  whole = np.zeros([len(found[predictor.CLASSES]), num_classes], np.float32)
  np.put_along_axis(
    whole, *(np.asarray(found[n]) for n in ('classes', 'scores')), axis=1
  )
  return whole


def milliseconds(run: Callable[[dict], Any], x: dict, count: int) -> float:
  """Returns the median of some calls, for one of `count` examples."""
  run(x)
  times = []
  for _ in range(_CALLS):
    started = time.perf_counter()
    run(x)
    times.append(time.perf_counter() - started)
  return 1000 * float(np.median(times)) / count


def measure(name: str, form: str, quantize: str) -> list[str]:
  """Returns a row of the table."""
  found = made(name)
  n, description = found.model.num_classes, found.description
  x, one = raw(description, _BATCH), raw(description, 1)
  exact = predictor.Predictor(found.model, found.weights, description, n)
  expected = logits(exact.predict(*(tf.constant(v) for v in x.values())), n)
  row = [name, f'{form} {quantize}'.strip()]
  with tempfile.TemporaryDirectory() as made_here:
    folder = pathlib.Path(made_here)
    try:
      exporting.write(found, folder, form, top=n, quantize=quantize)
    except errors.InputError:  # Not every format has an LSTM.
      return [*row, *'––––']
    size = sum(f.stat().st_size for f in folder.rglob('*') if f.is_file())
    off = np.abs(
      logits(prediction.LOADERS[form](folder)(x), n) - expected
    ).max()
    # A model returns a few classes.
    exporting.write(found, folder, form, top=5, quantize=quantize)
    run = prediction.LOADERS[form](folder)
    times = milliseconds(run, x, _BATCH), milliseconds(run, one, 1)
  row += [wording.human_bytes(size), *(f'{each:.2f}' for each in times)]
  return [*row, f'{off:.1g}']


def main(file: str, *names: str) -> None:
  if unknown := {*names} - {*NETWORKS}:
    sys.exit(f'{min(unknown)}: expected {", ".join(NETWORKS)}')
  there = all(map(importlib.util.find_spec, ('tf2onnx', 'onnxruntime')))
  rows = []
  for name in names or NETWORKS:
    for form, quantize in FORMATS:
      if form != 'onnx' or there:
        rows.append(measure(name, form, quantize))
        print(*rows[-1], sep=' | ', flush=True)
  columns = [
    'network',
    'format',
    'size',
    f'ms of {_BATCH}',
    'ms of 1',
    'off by',
  ]
  pd.DataFrame(rows, columns=columns).to_csv(file, index=False)
  print(f'{file}: written, on {report.machine()["cpu"]}')


if __name__ == '__main__':
  main(*sys.argv[1:])
