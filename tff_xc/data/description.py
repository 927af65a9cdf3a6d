"""Describes a data set for programs that use a trained network without the data."""

import dataclasses
from collections.abc import Mapping
from typing import Any

IMAGES, ROWS = 'images', 'rows'
SPARSE, CHARACTERS = 'sparse', 'characters'
# The names of the arrays of raw examples, by kind of examples.
ARGUMENTS = {
  IMAGES: ('images',),
  ROWS: ('rows',),
  SPARSE: ('ids', 'values', 'row_splits'),
  CHARACTERS: ('characters',),
}
KINDS = tuple(ARGUMENTS)
# Fields that reveal information about single clients.
OF_CLIENTS = ('num_clients', 'largest_label_set')


@dataclasses.dataclass(frozen=True)
class Description:
  """The form of a data set's examples and labels.

  Attributes:
    kind: the kind of examples, one of `KINDS`.
    shape: shape of one example as input of the network: [height, width(, channels)] of
      images, [D] of rows and sparse features, [length] of characters.
    dtype: dtype of the input of the network.
    num_classes: n.
    label_sets: whether a training example has a set of labels.
    num_clients: number of clients that may participate in training; None in the export
      of a private run.
    largest_label_set: the most distinct classes of any client; None in the export of a
      private run.
    preprocessing: how a raw example becomes an input of the network. The keys depend on the
      kind of examples.
      Images: `fit` is 'crop' (scale the shorter side and crop the center) or 'stretch'.
      If `dtype` is float32, raw pixels are divided by 255.
      Rows: `columns` are the names of the columns if they have names, and `label` is the
      name of the class column. If `mean` and `deviation` [D] exist, an input is
      (raw numbers - mean) / deviation.
      Sparse features: `num_features` is the number of features of raw examples. `hashed`
      says whether feature ids are hashed to `shape` (`data.hashing`). Histories of items
      have more keys. `history` is the number of latest items that are features. With
      `sequences`, repeated items keep separate entries.
      `leave_out_seen` says whether repeated items are dropped and items of the history are
      never predicted. `columns` has the names of the table's columns by 'user', 'item' and
      'time'.
      Characters: an example contains indices into `alphabet`. A character that is not in
      the alphabet counts as a space.
  """

  kind: str
  shape: tuple[int, ...]
  dtype: str
  num_classes: int
  label_sets: bool
  num_clients: int | None
  largest_label_set: int | None
  preprocessing: Mapping[str, Any]


def from_json(obj: Any) -> Description:
  """Returns the description from a JSON object; the keys `OF_CLIENTS` may be missing.

  Raises ValueError if the object is not a valid description.
  """
  types = {f.name: f.type for f in dataclasses.fields(Description)}
  if isinstance(obj, dict):
    obj = dict.fromkeys(OF_CLIENTS) | obj
  if not isinstance(obj, dict) or obj.keys() != types.keys():
    raise ValueError(f'expected an object of {", ".join(types)}')
  found = Description(**{**obj, 'shape': _sizes(obj['shape'])})
  known = [getattr(found, name) for name in ('num_classes', *OF_CLIENTS)]
  _sizes([size for size in known if size is not None])
  if found.kind not in KINDS or found.dtype not in ('uint8', 'float32'):
    raise ValueError(f'unknown examples: {found.kind} of {found.dtype}')
  if type(found.label_sets) is not bool:
    raise ValueError('expected "label_sets" to be true or false')
  if len(found.shape) not in ((2, 3) if found.kind == IMAGES else (1,)):
    raise ValueError(f'{found.kind} of the shape {[*found.shape]}')
  if not isinstance(found.preprocessing, dict) or not _is_sound(found):
    raise ValueError(f'"preprocessing" does not fit {found.kind}')
  return found


def _is_sound(found: Description) -> bool:
  """Whether the description's `preprocessing` is valid for its kind of examples."""
  how = found.preprocessing
  if found.kind == IMAGES:
    return how.get('fit', 'crop') in ('crop', 'stretch')
  if found.kind == CHARACTERS:
    return isinstance(how.get('alphabet'), str) and bool(how['alphabet'])
  if found.kind == SPARSE:
    _sizes([how.get('num_features'), how.get('history', 1)])
    flags = ['hashed', *(['leave_out_seen'] if 'history' in how else [])]
    return all(type(how.get(name)) is bool for name in flags)
  moments = [how.get(name) or [] for name in ('mean', 'deviation')]
  lists = [*moments, how.get('columns') or []]
  if not all(isinstance(each, list) for each in lists):
    return False
  are_numbers = all(type(x) in (int, float) for x in moments[0] + moments[1])
  return are_numbers and [len(each) for each in moments] in ([0, 0], [*found.shape] * 2)


def _sizes(values: Any) -> tuple[int, ...]:
  if not isinstance(values, list) or not all(type(v) is int and 0 < v < 2**31 for v in values):
    raise ValueError(f'expected sizes of at least 1: {values}')
  return tuple(values)
