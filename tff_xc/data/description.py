"""What a network, and who uses it, must know of a data set without having it."""

import dataclasses
from collections.abc import Mapping
from typing import Any

IMAGES, ROWS = 'images', 'rows'
SPARSE, CHARACTERS = 'sparse', 'characters'
# What raw examples consist of, by kind.
ARGUMENTS = {
  IMAGES: ('images',),
  ROWS: ('rows',),
  SPARSE: ('ids', 'values', 'row_splits'),
  CHARACTERS: ('characters',),
}
KINDS = tuple(ARGUMENTS)
# Fields that tell of single clients.
OF_CLIENTS = ('num_clients', 'largest_label_set')


@dataclasses.dataclass(frozen=True)
class Description:
  """The form of a data set's examples and labels; no TensorFlow is imported.

  Attributes:
    kind: of `KINDS`, what examples are.
    shape: of one example as the network takes it: [height, width(, channels)];
      [D], also of sparse features; [length] of characters.
    dtype: of its numbers.
    num_classes: n.
    label_sets: whether a training example has a set of labels.
    num_clients: those that may take part in training; None in the export of a private
      run, as for the next one.
    largest_label_set: the most distinct classes of a client.
    preprocessing: how a raw example becomes such an example.
      Images: `fit`, 'crop' (the shorter side is scaled and the middle is cut out) or
      'stretch'. float32 pixels are those of a raw image over 255.
      Rows: `columns`, their names if they have some, and `label`, the name of the
      column of the class; `mean` and `deviation` [D], if
      raw numbers lose the mean and are divided by the deviation.
      Sparse features: `num_features`, the D of raw examples, and `hashed`, whether
      these are hashed to `shape` (`data.hashing`). Of histories of items `history`, the
      last items that are features, `leave_out_seen`, whether a user takes none twice,
      and `columns` of the table, by 'user', 'item' and 'time'.
      Characters: `alphabet`, whose places are the numbers of an example; any other
      character counts as a space.
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
  """Returns the description of a JSON object, which may lack `OF_CLIENTS`.

  Raises ValueError for another one.
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
  """Whether raw examples can be processed as a description says."""
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
