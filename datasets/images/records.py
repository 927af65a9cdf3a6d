"""Images in TFRecord files of `tf.train.Example`, read in place.

An example has an image and perhaps a class, a user and an id, in features named as
`record_features` says. TFF's Landmarks and iNaturalist are `train/USER`, a file a
user without suffix, and `test.tfRecord`, with `image/encoded_jpeg` and `class`
(`tff.simulation.datasets.gldv2` and `inaturalist`, versions 0.87, write these).

An image's id is its path in a folder tree of the same content: train/CLASS/ID.jpg, or
train/CLASS/USER/ID.jpg if users are known, and test/... of files named or in a folder
named test or validation (or val, valid, dev); without classes ID.jpg. An ID that no
feature has is its file's stem and its place in the file. A `/` in a name becomes `%2F`.
"""

import array
import dataclasses
import pathlib
import re
import struct
import urllib.parse
from collections.abc import Iterator
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from datasets import examples as examples_lib
from datasets import never_data
from datasets import parsed_cache
from datasets.images import in_place
from datasets.images import paths
from datasets.images import record_features
from tff_xc import errors

# Increase this when the arrays of a cached index change.
VERSION = 2
_FILE = re.compile(r'\.tf_?rec(ord)?s?(-\d+-of-\d+)?$', re.IGNORECASE)
_TEST = re.compile(
  r'(^|[/_.-])(test(ing)?|val(id(ation)?)?|dev)([/_.-]|$)', re.IGNORECASE
)
_CRC_OF_BYTE = []
for _byte in range(256):
  for _ in range(8):
    _byte = _byte >> 1 ^ (0x82F63B78 if _byte & 1 else 0)
  _CRC_OF_BYTE.append(_byte)


class Records(NamedTuple):
  """The images of TFRecord files.

  Attributes:
    images: see `in_place.Images`.
    has_users: whether users are known, of all images of the training part.
  """

  images: in_place.Images
  has_users: bool


def is_records(name: str) -> bool:
  """Whether a file is a TFRecord file, by its name."""
  return bool(_FILE.search(name))


def open_records(
  path: pathlib.Path,
  files: Sequence[str] = (),
  features: record_features.Features = record_features.USUAL,
) -> Records:
  """Opens TFRecord files; the user's cache keeps the index of their images.

  Args:
    path: a file, or a folder.
    files: the folder's files, paths in it.
    features: their names.

  Raises:
    errors.InputError: a file is damaged or compressed, or an example lacks a feature
      that others have.
  """
  whole = [path / file for file in files] or [path]
  images, index = in_place.open_files(
    path,
    whole,
    VERSION,
    lambda store: _fill(store, path, list(files) or [path.name], features),
    features=list(features),
  )
  return Records(images, bool(index['has_users'][0]))


def user_of(name: str) -> str:
  """Returns the user of an image with users, by its id."""
  return urllib.parse.unquote(name.split('/')[-2])


def files_of_tff(path: pathlib.Path) -> list[str]:
  """Returns the files of TFF's layout in a folder; none if it has another."""
  if not (path / 'train').is_dir() or not (path / 'test.tfRecord').is_file():
    return []
  users = sorted(
    file.name
    for file in (path / 'train').iterdir()
    if file.is_file() and never_data.is_data(file.name)
  )
  return [*(f'train/{user}' for user in users), 'test.tfRecord']


def _fill(
  store: parsed_cache.Store, path, files, features: record_features.Features
) -> None:
  found = {name: array.array('q') for name in in_place.NUMBERS}
  kinds = set()

  def names() -> Iterator[str]:
    for place, name in enumerate(files):
      file = path / name if path.is_dir() else path
      scanned = _Scanned(file, name, len(files) > 1, features)
      for each, kind, offset, size in scanned.images():
        for numbers, value in zip(
          found.values(), (place, offset, size), strict=True
        ):
          numbers.append(value)
        kinds.add(kind)
        yield each

  texts, order = paths.all_in_order(names(), path)
  if paths.equal_to_next(texts).any():
    twice = int(np.flatnonzero(paths.equal_to_next(texts))[0])
    raise errors.InputError(
      f'{path} has two images {texts.take(np.array([twice]))[0]!r}; name another'
      ' feature for ids, --record_features=id=NAME'
    )
  if len({kind.has_class for kind in kinds}) > 1:
    raise errors.InputError(
      f'{path} has images with a class and without; name the feature of the class,'
      ' --record_features=class=NAME'
    )
  users = {kind.has_user for kind in kinds if not kind.is_test}
  if len(users) > 1:
    raise errors.InputError(
      f'{path} has images with a user and without; name the feature of the user,'
      ' --record_features=user=NAME'
    )
  in_place.append(store, texts, order, found)
  store.append('has_users', np.array([users == {True}]))


class _Kind(NamedTuple):
  """What is known of an image."""

  has_class: bool
  has_user: bool
  is_test: bool


class _Scanned:
  """A file, its examples and what they are called."""

  def __init__(
    self,
    file,
    name: str,
    is_one_of_many: bool,
    features: record_features.Features,
  ):
    """Args: the file, its path in the folder, whether there are others."""
    self._file, self._features = (
      file,
      dict(zip(record_features.KNOWN, features, strict=True)),
    )
    self._is_test = bool(_TEST.search(name))
    # Only files of TFF's layout have no suffix.
    self._user = None if is_records(name) or not is_one_of_many else file.name
    self._stem = _FILE.sub('', name.replace('/', '-')) or 'image'
    shard = re.search(r'-(\d+)-of-', name)
    if shard:
      self._stem += f'-{shard[1]}'

  def images(self) -> Iterator[tuple[str, _Kind, int, int]]:
    """Yields an image's id, what is known of it, its offset and its size."""
    import tensorflow as tf

    for number, (start, data) in enumerate(_framed(self._file)):
      try:
        found = dict(tf.train.Example.FromString(data).features.feature)
      except Exception as e:  # Protobuf's classes differ between its versions.
        raise errors.InputError(
          f'{self._file}: record {number + 1} is no tf.train.Example; get the file'
          ' again, or leave it out'
        ) from e
      values = {
        kind: self._value(found, kind, number) for kind in record_features.KNOWN
      }
      image = values['image']
      user = values['user'] if values['user'] is not None else self._user
      kind = _Kind(values['class'] is not None, user is not None, self._is_test)
      yield (
        self._id(values, user, kind, number),
        kind,
        start + data.index(image),
        len(image),
      )

  def _value(self, found, kind: str, number: int):
    """Returns a feature's value: bytes of an image, else text; None: none."""
    named = self._features[kind]
    name = named or next(
      (n for n in record_features.KNOWN[kind] if n in found), None
    )
    value = found.get(name)
    values = value and getattr(value, value.WhichOneof('kind') or '', None)
    content = values.value[0] if values and len(values.value) == 1 else None
    if kind == 'image':
      if type(content) is not bytes:
        self._lacks(found, kind, named, number)
      return content
    if content is None or type(content) is float:
      if named:
        self._lacks(found, kind, named, number)
      return None
    return (
      content.decode(errors='replace')
      if type(content) is bytes
      else (str(content))
    )

  def _lacks(self, found, kind: str, named: str, number: int):
    has = ', '.join(sorted(found)) or 'no features'
    raise errors.InputError(
      f'{self._file}: record {number + 1} has no {kind}'
      f' ({named or ", ".join(record_features.KNOWN[kind])}), it has {has}; name its feature,'
      f' --record_features={kind}=NAME'
    )

  def _id(self, values, user, kind: _Kind, number: int) -> str:
    name = (values['id'] or '').rpartition('/')[2]
    name = name or f'{self._stem}-{number:06d}'
    if not name.lower().endswith(paths.SUFFIXES):
      name += '.jpg'
    if not kind.has_class:
      return name
    parts = ['test' if self._is_test else 'train', values['class']]
    if kind.has_user:
      parts.append(user)
    return '/'.join([urllib.parse.quote(p, ' ') for p in parts] + [name])


def _framed(file: pathlib.Path) -> Iterator[tuple[int, bytes]]:
  """Yields the offset and the content of each record.

  Checksums of lengths are checked, those of contents are not: a damaged image is
  found when it is decoded.
  """
  size = file.stat().st_size
  with file.open('rb') as opened:
    start = 0
    while start < size:
      head = opened.read(12)
      length, check = (
        struct.unpack('<QI', head) if len(head) == 12 else (size, 0)
      )
      if len(head) == 12 and check != masked_crc(head[:8]):
        raise errors.InputError(
          f'{file} is no TFRecord file from byte {start:,} on; get a damaged one'
          ' again, and unpack a compressed one, which cannot be read in place'
        )
      if start + 16 + length > size:
        raise errors.InputError(
          f'{file} ends within its last record; get it again'
        )
      yield start + 12, opened.read(length)
      opened.read(4)
      start += 16 + length


def masked_crc(data: bytes) -> int:
  """Returns TFRecord's checksum: CRC-32C, rotated, plus a constant."""
  crc = 0xFFFFFFFF
  for byte in data:
    crc = _CRC_OF_BYTE[(crc ^ byte) & 0xFF] ^ crc >> 8
  crc ^= 0xFFFFFFFF
  return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def with_users(images: examples_lib.Examples) -> examples_lib.Examples:
  """Returns the images with the users of those that train, by their ids."""
  codes, trains = examples_lib.Codes(), images.train
  for block in examples_lib.blocks(len(trains)):
    codes.add(map(user_of, images.ids.take(trains[block])))
  users = np.full(len(images), -1, np.int32)
  users[trains] = codes.codes()
  return dataclasses.replace(images, users=users, user_names=codes.names)
