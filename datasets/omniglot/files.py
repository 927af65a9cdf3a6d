"""Finds and checks Omniglot's 32,460 drawings on disk, without decoding them.

Two sources have the same drawings under the same numbers:

- `omniglot_1623.npz`: one file of packed bits (see `_from_npz`);
- the official `images_background` and `images_evaluation`, each a folder or a
  `.zip`, with files `<Alphabet>/character<NN>/<id>_<drawer>.png`: 105×105, one
  bit, black ink on white.

Background classes have the first numbers. Within each part, classes are sorted
by alphabet, then by character, both as strings: the order of the `.npz`.
"""

import collections
import dataclasses
import io
import os
import pathlib
import re
import zipfile
import zlib
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from datasets import never_data
from tff_xc import errors

SIDE = 105  # pixels, of every drawing
NPZ = 'omniglot_1623.npz'
PARTS = ('images_background', 'images_evaluation')
_DRAWING = re.compile(r'(?:^|/)([^/]+/character\d+)/\d+_(\d+)\.png$')
# The exceptions that readers raise for a damaged archive or file. The last two
# come from zipfile, for a damaged header.
_DAMAGE = (
  OSError,
  zipfile.BadZipFile,
  zlib.error,
  NotImplementedError,
  RuntimeError,
)
_GET_IT = (
  'get images_background.zip and images_evaluation.zip again from '
  'https://github.com/brendenlake/omniglot'
)


@dataclasses.dataclass(frozen=True)
class Counts:
  """The counts of a complete copy; a copy with other counts is refused."""

  background: int = 964
  evaluation: int = 659
  alphabets: int = 50
  drawers: int = 20

  @property
  def classes(self) -> int:
    return self.background + self.evaluation

  @property
  def images(self) -> int:
    return self.classes * self.drawers


OFFICIAL = Counts()


@dataclasses.dataclass(frozen=True)
class Drawings:
  """All drawings, numbered `class · drawers + drawer − 1`.

  Attributes:
    class_names: 'Alphabet/characterNN' of each class, background first.
    counts: the numbers of classes, drawers and so on.
    read: decodes drawings: numbers, int [k] -> uint8 [k, 105, 105], ink 1;
      raises InputError for a file that cannot be decoded.
  """

  class_names: list[str]
  counts: Counts
  read: Callable[[np.ndarray], np.ndarray]


def find(data_dir: str | os.PathLike, expected: Counts = OFFICIAL) -> Drawings:
  """Finds Omniglot in `<data_dir>/omniglot` or `<data_dir>`; decodes nothing.

  The `.npz` has precedence over folders, and folders over zips.

  Args:
    data_dir: the directory of all data.
    expected: the counts a complete copy has.

  Raises:
    InputError: nothing is found, a file is damaged, or counts differ from
      `expected`.
  """
  places = [pathlib.Path(data_dir) / 'omniglot', pathlib.Path(data_dir)]
  for place in places:
    if (place / NPZ).is_file():
      return _from_npz(place / NPZ, expected)
  for place in places:
    parts = [_part(place, part) for part in PARTS]
    if all(parts):
      return _from_pngs(parts, expected)
    if any(parts):
      missing = PARTS[parts.index(None)]
      raise errors.InputError(
        f'{place}: {missing} is missing beside {parts[1 - parts.index(None)]}; '
        f'put {missing} or {missing}.zip there'
      )
  raise errors.InputError(
    f'no Omniglot in {places[0]} or {places[1]}: expected {NPZ}, or '
    f'{PARTS[0]} and {PARTS[1]} as folders or .zip files; {_GET_IT}, '
    'or name another directory with --data_dir'
  )


def _part(place: pathlib.Path, part: str) -> pathlib.Path | None:
  """Returns the folder or the zip of one part, or None."""
  if (place / part).is_dir():
    return place / part
  zipped = place / f'{part}.zip'
  return zipped if zipped.is_file() else None


def _from_npz(path: pathlib.Path, expected: Counts) -> Drawings:
  """Reads the packed file, about 45 MB, and keeps it packed in memory.

  Its arrays: `bits` uint8 [N, 105, 14] (ink 1, rows padded to whole bytes),
  `label` [N] into `class_names` [classes], `drawer` [N] from 1,
  `is_evaluation` bool [N].
  """
  names = ('bits', 'label', 'drawer', 'is_evaluation', 'class_names')
  try:
    with np.load(path, allow_pickle=False) as arrays:
      found = {name: arrays[name] for name in names}
  except (*_DAMAGE, ValueError, KeyError, TypeError, EOFError) as e:
    raise errors.InputError(
      f'{path} is damaged or not an Omniglot file ({e}); '
      f'copy it again, or {_GET_IT}'
    ) from e
  bits, label, drawer, is_evaluation, class_names = found.values()
  rows = len(label)
  if bits.shape != (rows, SIDE, -(-SIDE // 8)) or bits.dtype != np.uint8:
    raise errors.InputError(
      f'{path}: bits is {bits.dtype} {list(bits.shape)}, expected uint8 '
      f'[{rows}, {SIDE}, {-(-SIDE // 8)}]; copy the file again'
    )
  for name in ('drawer', 'is_evaluation'):
    if len(found[name]) != rows:
      raise errors.InputError(
        f'{path}: {name} has {len(found[name])} entries, expected {rows}; '
        'copy the file again'
      )
  if rows and not 0 <= label.min() <= label.max() < len(class_names):
    raise errors.InputError(
      f'{path}: labels run from {label.min()} to {label.max()}, expected '
      f'numbers below {len(class_names)}; copy the file again'
    )
  keys = [
    (bool(e), str(class_names[c]), int(d))
    for e, c, d in zip(is_evaluation, label, drawer, strict=True)
  ]
  class_names, order = _number(str(path), keys, expected)

  def read(numbers):
    return np.unpackbits(bits[order[numbers]], axis=-1, count=SIDE)

  return Drawings(class_names, expected, read)


def _from_pngs(parts: list[pathlib.Path], expected: Counts) -> Drawings:
  """Lists both parts; a PNG is read on demand."""
  keys, files = [], []
  for is_evaluation, part in enumerate(parts):
    names, read_bytes = (_list_zip if part.is_file() else _list_folder)(part)
    for name in names:
      if match := _DRAWING.search(name):
        keys.append((bool(is_evaluation), match[1], int(match[2])))
        files.append((read_bytes, name, f'{part}/{name}'))
  class_names, order = _number(f'{parts[0]} and {parts[1]}', keys, expected)

  def read(numbers):
    found = [_decode(*files[order[i]]) for i in numbers]
    return np.stack(found) if found else np.zeros([0, SIDE, SIDE], np.uint8)

  return Drawings(class_names, expected, read)


def _list_folder(part: pathlib.Path):
  """Returns the names of a folder's PNGs, and a function: name to bytes."""
  names = (p.relative_to(part).as_posix() for p in part.glob('*/*/*.png'))
  return sorted(filter(never_data.is_data, names)), lambda name: (
    part / name
  ).read_bytes()


def _list_zip(part: pathlib.Path):
  """As `_list_folder`, for a zip; keeps its 10 MB in memory, no file open."""
  try:
    archive = zipfile.ZipFile(io.BytesIO(part.read_bytes()))
  except _DAMAGE as e:
    raise errors.InputError(
      f'{part} is damaged or not a zip file ({e}); {_GET_IT}'
    ) from e
  return sorted(filter(never_data.is_data, archive.namelist())), archive.read


def _decode(read_bytes, name: str, path: str) -> np.ndarray:
  """Decodes one PNG to uint8 [105, 105], ink 1."""
  try:
    image = tf.io.decode_png(read_bytes(name), channels=1).numpy()[..., 0]
  except (*_DAMAGE, tf.errors.OpError) as e:
    reason = str(e).rsplit('}} ', maxsplit=1)[-1].split(' [Op:')[0]
    raise errors.InputError(
      f'{path} is not a readable PNG ({reason}); {_GET_IT}'
    ) from e
  if image.shape != (SIDE, SIDE):
    raise errors.InputError(
      f'{path} has {image.shape[0]}×{image.shape[1]} pixels, '
      f'expected {SIDE}×{SIDE}; {_GET_IT}'
    )
  return (image < 128).astype(np.uint8)


def _number(
  source: str, keys: list[tuple[bool, str, int]], expected: Counts
) -> tuple[list[str], np.ndarray]:
  """Numbers the drawings and checks that every one is there exactly once.

  Args:
    source: the file or folders, for the error.
    keys: (is_evaluation, class name, drawer) of each drawing that was found.
    expected: the counts that must be found.

  Returns:
    The classes' names in their order, and int64 [images]: for each number
    `class · drawers + drawer − 1`, the drawing's position in `keys`.

  Raises:
    InputError: the counts differ from `expected`.
  """
  classes = sorted({key[:2] for key in keys})
  found = {
    'images': len(keys),
    'background': sum(not evaluation for evaluation, _ in classes),
    'evaluation': sum(evaluation for evaluation, _ in classes),
    'alphabets': len({name.split('/')[0] for _, name in classes}),
  }
  wanted = {k: getattr(expected, k) for k in found}
  if found != wanted:
    raise errors.InputError(
      f'{source}: found {_say(found)}; expected {_say(wanted)}; the copy is '
      f'incomplete or has files that do not belong, {_GET_IT}'
    )
  order = sorted(range(len(keys)), key=keys.__getitem__)
  drawers = collections.defaultdict(list)
  for i in order:
    drawers[keys[i][:2]].append(keys[i][2])
  for (_, name), present in drawers.items():
    if present != list(range(1, expected.drawers + 1)):
      raise errors.InputError(
        f'{source}: {name} has drawings by {present}, expected one by each of '
        f'the drawers 1 to {expected.drawers}; {_GET_IT}'
      )
  return [name for _, name in classes], np.array(order, np.int64)


def _say(counts: dict[str, int]) -> str:
  return (
    f'{counts["images"]:,} images, {counts["background"]:,} background and '
    f'{counts["evaluation"]:,} evaluation classes, '
    f'{counts["alphabets"]} alphabets'
  )
