"""Starts training from the weights of another run, or of an exported model.

For example, one run trains centrally on public data, and a second run continues on clients.
The second run finds weights by their names, so it needs neither data nor network of the first
run.
"""

import collections
import dataclasses
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tff_xc import classifier, errors, files, heads, wording
from tff_xc.data import fingerprint
from tff_xc.experiment import checkpoints, storage
from tff_xc.report import run_files

# Files in a folder written by `launch.export --format=npz`.
_EXPORT, _CARD = 'model.npz', 'model.json'
# For each prefix of names in model.npz: the possible prefixes of the same weights in a
# checkpoint.
_OF_EXPORT = {'encoder/': ('encoder/', 'tables/'), 'state/': ('encoder_state/',)}
# The limit for the weights. The weights are constants of a computation, and TFF sends a
# computation in a message of at most 2 GB.
_MOST_BYTES = 2**30


class Source(NamedTuple):
  """The weights of a run or an exported model."""

  arrays: Mapping[str, np.ndarray]  # By names in checkpoints, such as `encoder/dense/bias`.
  class_names: list[str] | None  # None: the classes have no names.
  num_classes: int
  preprocessing: Mapping[str, Any] = {}  # `preprocessing` of the run's description.


def read(path: str | os.PathLike) -> Source:
  """Reads the last checkpoint of a run directory, or an export in the npz format.

  Raises `errors.InputError` if `path` is neither of the two, or if it is damaged.
  """
  folder = pathlib.Path(path)
  try:
    if (folder / _EXPORT).is_file():
      arrays = _of_export(storage.read_arrays(folder / _EXPORT))
      about = files.read_json(folder / _CARD)['description']
    elif run_files.is_run(folder) and (rounds := checkpoints.kept(folder)):
      arrays = checkpoints.model_arrays(folder, rounds[-1])
      about = files.read_json(folder / run_files.DESCRIPTION)
    else:
      raise errors.InputError(
        f'--start_from={path} is neither the directory of a run with a checkpoint, nor'
        ' a folder that `launch.export --format=npz` wrote'
      )
    num_classes = int(about['num_classes'])
    names = run_files.class_names(folder / run_files.CLASSES, num_classes)
  except (storage.DamagedError, OSError, ValueError, KeyError, TypeError) as e:
    raise errors.DamageError(
      f'--start_from={path} is damaged ({wording.shown(e)}); name another one'
    ) from e
  return Source(arrays, names, num_classes, about.get('preprocessing') or {})


def _of_export(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
  """Renames the arrays of a model.npz to their names in checkpoints."""
  found = {}
  for name, array in arrays.items():
    for prefix, parts in _OF_EXPORT.items():
      if name.startswith(prefix):
        # An export does not say which of the encoder's weights are tables, so each array
        # gets all names that it may have.
        found |= {part + name.removeprefix(prefix): array for part in parts}
  return {**found, f'tables/{classifier.CLASS}': arrays['class_rows']}


def check_features(
  model: classifier.EmbeddingClassifier,
  preprocessing: Mapping[str, Any],
  class_names: Sequence[str] | None,
  source: Source,
  path: str,
) -> None:
  """Raises InputError if features have different meanings in the source and in the data set.

  Features of tabular data are named columns. Features of item histories are items, which
  are also the classes. Their order matters, except if `model`, which takes the weights, has one
  row for each item (`encoder.tied`).
  """
  columns = [how.get('columns') for how in (preprocessing, source.preprocessing)]
  if all(isinstance(each, list) for each in columns) and columns[0] != columns[1]:
    there, here = (wording.shown(', '.join(each[:5])) for each in columns[::-1])
    raise errors.InputError(
      f'--start_from={path}: its features begin with {there}, and those of these data'
      f' with {here}; give the same --feature_columns in the same order'
    )
  has_items = 'history' in preprocessing and not model.encoder.tied
  if has_items and source.class_names != list(class_names or ()):
    raise errors.InputError(
      f'--start_from={path}: its items are not those of these data in the same order,'
      ' and the rows of features go by the order; train it on the same items'
    )


def started(
  model: classifier.EmbeddingClassifier,
  class_names: Sequence[str] | None,
  source: Source,
  path: str,
  with_rows: bool = True,
) -> tuple[classifier.EmbeddingClassifier, str, str]:
  """Returns (a model that starts from the source's weights, their checksum, a text about them).

  The model takes all encoder weights from the source. If `with_rows` is true, the model also
  takes the rows of those classes that the source has. Raises `errors.InputError` if a weight
  is missing or has another shape, or if the weights have more than 1 GiB.
  """
  taken = {}
  for name, spec in storage.named(model.weight_specs()):
    if name == f'tables/{classifier.CLASS}':
      continue
    shape = source.arrays[name].shape if name in source.arrays else None
    if shape != tuple(spec.shape):
      there = 'missing' if shape is None else f'{[*shape]}'
      raise errors.InputError(
        f'--start_from={path}: its weight {name} is {there}, and that of this model is'
        f' {[*spec.shape]}; give the network options of that run, such as --encoder'
        ' and --embedding_dim'
      )
    taken[name] = source.arrays[name]
  table = source.arrays[f'tables/{classifier.CLASS}']
  places = np.zeros([0, 2], np.int32)
  if with_rows:
    places = _same(model, class_names, source)
    if len(places) and table.shape[1] != model.row_dim:
      raise errors.InputError(
        f'--start_from={path}: its class rows have {table.shape[1]} numbers, and those'
        f' of this model {model.row_dim}; give --start_from_rows=none, or the same'
        ' head'
      )
  rows, places = table[places[:, 0]], places[:, 1]
  size = sum(array.nbytes for array in (*taken.values(), rows))
  if size > _MOST_BYTES:
    raise errors.InputError(
      f'--start_from={path}: {wording.human_bytes(size)} of weights; at most'
      f' {wording.human_bytes(_MOST_BYTES)} can be taken: give --start_from_rows=none'
    )

  def start(fresh: classifier.ModelWeights) -> classifier.ModelWeights:
    """Returns the initial weights `fresh`, updated with the weights and rows of the source."""
    parts = (
      collections.OrderedDict(
        (name, taken.get(f'{part}/{name}', value)) for name, value in getattr(fresh, part).items()
      )
      for part in ('encoder', 'encoder_state', 'tables')
    )
    updated = tf.nest.map_structure(tf.convert_to_tensor, classifier.ModelWeights(*parts))
    if len(places):
      updated.tables[classifier.CLASS] = tf.tensor_scatter_nd_update(
        updated.class_table, places[:, None], rows
      )
    return updated

  checksum = fingerprint.checksum([*taken.values(), rows, places])
  told = (
    f'start from {path}: the encoder, and {len(places):,} of'
    f' {wording.count(model.num_rows, "class row")}'
  )
  return dataclasses.replace(model, start=start), checksum, told


def _same(model, class_names, source: Source) -> np.ndarray:
  """Returns int32 [k, 2], the row indices of each common class in the source and the model.

  Classes match by name. Without any class names, classes match by number if both sides have
  equally many classes. If only one side has class names, no classes match. With a hashed
  head, all rows match if both sides have the same classes and equally many rows; if not, no
  rows match.
  """
  here, there = class_names, source.class_names
  if here is None or there is None:
    if here is not there or model.num_classes != source.num_classes:
      return np.zeros([0, 2], np.int32)
    here = there = range(model.num_classes)
  if isinstance(model.head, heads.HashedHead):
    is_same = list(here) == list(there)
    here = there = range(model.num_rows if is_same else 0)
    if is_same and len(source.arrays[f'tables/{classifier.CLASS}']) != len(here):
      here = there = ()
  elif len(source.arrays[f'tables/{classifier.CLASS}']) != source.num_classes:
    here = there = ()  # The source has rows of buckets.
  place = {name: i for i, name in enumerate(there)}
  pairs = [(place[name], i) for i, name in enumerate(here) if name in place]
  return np.array(pairs, np.int32).reshape(-1, 2)
