"""Reads images in tars and TFRecord files in place, by their offsets.

The index has the name, file, offset and size of each image. It is made once and stored in
the user's cache folder.

Tars: The input is a tar, or a folder of tars such as ImageNet's, with one tar for each
class. A tar may contain tars. Each tar inside a folder or inside another tar counts as a folder
with the name of the tar without `.tar`. So the image `n01440764_1.JPEG` in `n01440764.tar` has
the id `n01440764/n01440764_1.JPEG`. If a tar has images itself, the tars inside it are ignored.
If several images have the same name, the last one is used.

TFRecords: Each `tf.train.Example` has an image, and optionally a class, a user and an id.
`record_features` names their features. TFF's Landmarks and iNaturalist
(`tff.simulation.datasets.gldv2` and `inaturalist`, version 0.87) have a file without suffix
for each user, `train/USER`, and `test.tfRecord`. The examples in these files have the features
`image/encoded_jpeg` and `class`. The id of an image looks like a path in a folder of images:

  train/CLASS/ID.jpg        or train/CLASS/USER/ID.jpg, if users are known
  test/...                  if the file, or a folder around it, is named test or
                            validation (or val, valid, dev)
  ID.jpg                    if there are no classes

If no feature has the ID, the file's name without suffix and the example's index in the file
replace it. A `/` in the name of a class or user becomes `%2F`, and a `%` becomes `%25`.
"""

import array
import dataclasses
import functools
import os
import pathlib
import re
import tarfile
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from datasets import examples as examples_lib
from datasets.readers import image_names as names_lib, parsed_cache, record_features, zipped
from tff_xc import errors, wording

# The largest size of an image file in bytes: 89 million pixels without compression.
MOST_BYTES = 2**28
# The largest number of files that are open at once.
_OPEN = 64
# Increase these when the arrays of a cached index change.
_TARS, _RECORDS = 9, 5
# An index consists of the names of all images and these arrays.
_NUMBERS = {'files': np.int32, 'offsets': np.int64, 'sizes': np.int64}
# The pattern also matches compressed files, so that an error tells users to unpack them.
_RECORD_FILE = re.compile(
  r'\.(tf_?rec(ord)?s?|records?)(-\d+-of-\d+)?(\.(gz|bz2|xz|zst|zlib))?$', re.IGNORECASE
)
_TEST = re.compile(r'(^|[/_.-])(test(ing)?|val(id(ation)?)?|dev)([/_.-]|$)', re.IGNORECASE)


def check_size(size: int) -> None:
  """Raises ValueError if a file of `size` bytes is too large for an image."""
  if size > MOST_BYTES:
    raise ValueError(
      f'it has {wording.human_bytes(size)}, and the file of an image at most'
      f' {wording.human_bytes(MOST_BYTES)}'
    )


def _index(
  found: Iterable[tuple], where: Sequence[array.array], path
) -> tuple[examples_lib.Texts, np.ndarray]:
  """Sorts the names in `found`; returns the sorted names and their old indices.

  `found` yields (name, number, ...). The numbers are appended to the arrays `where`.
  """

  def names():
    for name, *numbers in found:
      for column, number in zip(where, numbers, strict=True):
        column.append(number)
      yield name

  return names_lib.in_order(names(), path)


def _arrays(names: examples_lib.Texts, order, where) -> dict[str, np.ndarray]:
  """Converts an index to the arrays that the cache stores."""
  _, ends, text = names.array.buffers()
  ends = np.frombuffer(ends, np.int64)[: len(names) + 1]
  text = np.frombuffer(b'' if text is None else text, np.uint8)[: ends[-1]]
  numbers = {
    name: np.frombuffer(column, np.int64)[order].astype(dtype)
    for (name, dtype), column in zip(_NUMBERS.items(), where, strict=True)
  }
  return {'names': text, 'ends': ends, **numbers}


def _open(whole: Sequence[pathlib.Path], index: Mapping[str, np.ndarray]) -> tuple:
  """Returns the fields names, read, stamp and files of an `images.Store` from an index."""
  import pyarrow as pa

  text = map(pa.py_buffer, (index['ends'], index['names']))
  names = pa.LargeStringArray.from_buffers(len(index['ends']) - 1, *text)
  files, offsets, sizes = (index[name] for name in _NUMBERS)
  statuses = [[s.st_size, s.st_mtime_ns] for s in map(os.stat, whole)]

  def stamp(numbers: np.ndarray) -> list[list[int]]:
    # The same TFRecords have other images if `record_features` names another feature.
    parts = (part[numbers].tolist() for part in (files, offsets, sizes))
    return [[*statuses[place], start, size] for place, start, size in zip(*parts, strict=True)]

  @functools.lru_cache(_OPEN)
  def opened(place: int):
    return whole[place].open('rb')

  def read(number: int) -> bytes:
    place, size = int(files[number]), int(sizes[number])
    check_size(size)
    file = opened(place)
    data = os.pread(file.fileno(), size, int(offsets[number]))
    if len(data) < size:
      raise EOFError(f'{whole[place]} ends within it')
    return data

  return (
    examples_lib.Texts(names),
    read,
    stamp,
    whole,
  )


def open_tars(path: pathlib.Path, files: Sequence[str] = ()) -> tuple:
  """Opens a tar or, if `files` is not empty, these tars of a folder.

  Returns the result of `_open`. Raises `errors.InputError` if a tar is damaged or has a link
  in place of an image.
  """
  whole = [path / file for file in files] or [path]
  prefixes = [f'{_stem(file)}/' for file in files] or ['']
  index = parsed_cache.of_files(
    path,
    'index',
    _TARS,
    whole,
    lambda: _arrays(*_scanned(path, zip(prefixes, whole, strict=True))),
  )
  return _open(whole, index)


def _scanned(path, named: Iterable[tuple[str, pathlib.Path]]):
  """Returns the sorted names of the images in tars, their old indices, and their `_NUMBERS`.

  `named` yields pairs of a prefix and a tar. The names of the tar's images get the prefix.
  """
  found = names_lib.Found()
  where = [*(array.array('q') for _ in _NUMBERS), array.array('b')]

  def images():
    for place, (prefix, file) in enumerate(named):
      for name, *numbers in _images(file, file, found, prefix):
        yield name, place, *numbers

  names, order = _index(images(), where, path)
  tars, is_inner = np.array(where[0]), np.array(where.pop(), bool)
  left_out = is_inner & np.isin(tars, tars[~is_inner])
  if left_out.any():
    kept = np.flatnonzero(~left_out[order])
    names, order = examples_lib.Texts(names.array.take(kept)), order[kept]
  found.tell(path)
  return *names_lib.last_of_equal(names, order), where


def _images(
  file, path, found: names_lib.Found, prefix: str, start: int = 0
) -> Iterator[tuple[str, int, int, bool]]:
  """Yields each image's name, offset and size, and whether it is in an inner tar."""
  opened = {'name' if isinstance(file, pathlib.Path) else 'fileobj': file}
  try:
    with tarfile.open(**opened, mode='r:', tarinfo=_Member) as archive:
      while (member := archive.next()) is not None:
        archive.members.clear()  # Otherwise the archive would keep all members in memory.
        tar = names_lib.clean(member.name) or ''
        is_tar = tar.lower().endswith('.tar')
        name = None if is_tar or member.isdir() else found.image(prefix + member.name)
        if name and (member.islnk() or member.issym()):
          raise errors.InputError(
            f'{path}: {member.name} is a link, to {member.linkname}; pack the'
            ' images with tar --dereference --hard-dereference'
          )
        offset = start + member.offset_data
        if name and member.isfile():
          yield name, offset, member.size, start > 0
        elif is_tar and member.isfile():
          within = f'{path}, {member.name}', found, f'{prefix}{_stem(tar)}/'
          yield from _images(archive.extractfile(member), *within, offset)
  except (OSError, EOFError, ValueError, tarfile.TarError) as e:
    raise errors.InputError(
      f'{path} is no tar that can be read ({e}); get a damaged one again, and unpack'
      ' a compressed one (.tar.gz), whose images cannot be read in place'
    ) from e


def _stem(tar: str) -> str:
  return tar[: -len('.tar')]


class _Member(tarfile.TarInfo):
  """Raises an error for a damaged header. Python would take the header for the tar's end."""

  @classmethod
  def fromtarfile(cls, file):
    try:
      return super().fromtarfile(file)
    except (tarfile.InvalidHeaderError, tarfile.TruncatedHeaderError) as e:
      raise tarfile.ReadError(f'{e} at byte {file.offset:,}') from e
    except tarfile.EmptyHeaderError as e:
      raise tarfile.ReadError(
        f'it stops at byte {file.offset:,} without the zeros that end a tar'
      ) from e


def is_records(name: str) -> bool:
  """Returns whether `name` is the name of a TFRecord file."""
  return bool(_RECORD_FILE.search(name))


def files_of_tff(path: pathlib.Path) -> list[str]:
  """Returns the files of a folder in TFF's layout, or [] if the folder has another layout."""
  if not (path / 'train').is_dir() or not (path / 'test.tfRecord').is_file():
    return []
  users = sorted(
    file.name for file in (path / 'train').iterdir() if file.is_file() and zipped.is_data(file.name)
  )
  return [*(f'train/{user}' for user in users), 'test.tfRecord']


def open_records(
  path: pathlib.Path,
  files: Sequence[str] = (),
  features: record_features.Features = record_features.USUAL,
) -> tuple:
  """Opens a TFRecord file or, if `files` is not empty, these files of a folder.

  Returns the result of `_open` and `has_users`. Raises `errors.InputError` if a file is
  damaged or compressed, an example lacks an image or one of `features`, or only some
  examples have users.
  """
  whole = [path / file for file in files] or [path]
  named = [features.get(noun, '') for noun in record_features.KNOWN]
  index = parsed_cache.of_files(
    path,
    'index',
    _RECORDS,
    whole,
    lambda: _records(path, whole, files or [path.name], features),
    features=named,
  )
  return *_open(whole, index), bool(index['has_users'][0])


def _records(
  path: pathlib.Path,
  whole: Sequence[pathlib.Path],
  files: Sequence[str],
  features: record_features.Features,
) -> dict[str, np.ndarray]:
  """Returns the index of the examples of TFRecord files."""
  where, known = [array.array('q') for _ in _NUMBERS], set()

  def images():
    for place, (file, name) in enumerate(zip(whole, files, strict=True)):
      # Only files of TFF's layout have no suffix. Their names are users.
      of_file = file.name if len(files) > 1 and not is_records(name) else None
      is_test = of_file is None and bool(_TEST.search(name))
      stem = _RECORD_FILE.sub('', name.replace('/', '-')) or 'image'
      if shard := re.search(r'-(\d+)-of-', name):
        stem += f'-{shard[1]}'
      for number, (offset, values) in enumerate(_examples(file, features)):
        user = of_file if values['user'] is None else values['user']
        known.add((user is not None, is_test))
        own = (values['id'] or '').rpartition('/')[2] or f'{stem}-{number:06d}'
        if not own.lower().endswith(names_lib.SUFFIXES):
          own += '.jpg'
        if values['class'] is not None:
          part = 'test' if is_test else 'train'
          above = [part, values['class'], *([] if user is None else [user])]
          above = [n.replace('%', '%25').replace('/', '%2F') for n in above]
          own = '/'.join([*above, own])
        yield own, place, offset, len(values['image'])

  names, order = _index(images(), where, path)
  if (twice := np.flatnonzero(names_lib.equal_to_next(names))).size:
    raise errors.InputError(
      f'{path} has two images {names.take(twice[:1])[0]!r}; name another'
      ' feature for ids, --record_features=id=NAME'
    )
  users = {has_user for has_user, is_test in known if not is_test}
  if len(users) > 1:
    raise errors.InputError(
      f'{path} has images with a user and without; name the feature, --record_features=user=NAME'
    )
  return {**_arrays(names, order, where), 'has_users': np.array([users == {True}])}


def _examples(
  file: pathlib.Path, features: record_features.Features
) -> Iterator[tuple[int, dict[str, bytes | str | None]]]:
  """Yields the offset of each example's image in the file, and the example's values."""
  import tensorflow as tf
  from google.protobuf import message

  start = 0
  try:
    for data in tf.data.TFRecordDataset(str(file)).as_numpy_iterator():
      found = dict(tf.train.Example.FromString(data).features.feature)
      values = {}
      for noun, usual in record_features.KNOWN.items():
        given = features.get(noun)
        name = given or next((n for n in usual if n in found), None)
        values[noun] = _value(found.get(name), is_text=noun != 'image')
        if values[noun] is None and (given or noun == 'image'):
          raise errors.InputError(
            f'{file}: an example has no {noun} ({given or ", ".join(usual)}), it has'
            f' {", ".join(sorted(found)) or "no features"}; name its feature,'
            f' --record_features={noun}=NAME'
          )
      # The data come after the record's length and the checksum of the length: 12 bytes.
      yield start + 12 + data.index(values['image']), values
      start += 16 + len(data)
  except (tf.errors.DataLossError, message.DecodeError) as e:
    raise errors.InputError(
      f'{file} is no TFRecord file of tf.train.Example that can be read ({e}); get a damaged'
      ' one again, and unpack a compressed one, which cannot be read in place'
    ) from e


def _value(feature, is_text: bool) -> bytes | str | None:
  """Returns the single value of a feature; None: the feature has no single value of this type."""
  values = feature and getattr(feature, feature.WhichOneof('kind') or '', None)
  value = values.value[0] if values and len(values.value) == 1 else None
  if type(value) is bytes:
    return value.decode(errors='replace') if is_text else value
  return str(value) if is_text and type(value) is int else None


def with_users(images: examples_lib.Examples) -> examples_lib.Examples:
  """Adds the users of training images from TFRecords. The images' ids contain the users."""
  codes, trains = examples_lib.Codes(), images.train
  for block in examples_lib.blocks(len(trains)):
    codes.add(urllib.parse.unquote(name.split('/')[-2]) for name in images.ids.take(trains[block]))
  users = np.full(len(images), -1, np.int32)
  users[trains] = codes.codes()
  return dataclasses.replace(images, users=users, user_names=codes.names)
