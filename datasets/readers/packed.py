"""Images in tars and TFRecord files, read in place by their offsets.

The index (names, files, offsets, sizes) is made once and kept in the user's cache.

Tars: one, or a folder of tars such as ImageNet's, one for each class; a tar may
itself have tars. An image in an inner tar, or in one of a folder's, has the id
that it would have if the tar were a folder without `.tar`: `n01440764.tar` has
`n01440764/n01440764_1.JPEG`. Of images of one name, the last counts.

TFRecords of `tf.train.Example`: an image and perhaps a class, a user and an id, in
features named as `record_features` says. TFF's Landmarks and iNaturalist are
`train/USER`, a file a user without suffix, and `test.tfRecord`, with
`image/encoded_jpeg` and `class` (`tff.simulation.datasets.gldv2` and `inaturalist`,
versions 0.87, write these). An image's id is its path in a folder tree of the same
content: train/CLASS/ID.jpg, or train/CLASS/USER/ID.jpg if users are known, and
test/... of files named or in a folder named test or validation (or val, valid, dev);
without classes ID.jpg. An ID that no feature has is its file's stem and its place in
the file. A `/` in a name becomes `%2F`.
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

# Of a file of one image: 89 million pixels without compression.
MOST_BYTES = 2**28
# Files that are open at once.
_OPEN = 64
# Increase these when the arrays of a cached index change.
_TARS, _RECORDS = 8, 3
# The names and these arrays are what an index consists of.
_NUMBERS = {'files': np.int32, 'offsets': np.int64, 'sizes': np.int64}
# Compressed files have such names, too, and are refused with what to do.
_RECORD_FILE = re.compile(
  r'\.(tf_?rec(ord)?s?|records?)(-\d+-of-\d+)?(\.(gz|bz2|xz|zst|zlib))?$', re.IGNORECASE
)
_TEST = re.compile(r'(^|[/_.-])(test(ing)?|val(id(ation)?)?|dev)([/_.-]|$)', re.IGNORECASE)


def check_size(size: int) -> None:
  """Raises ValueError of what is too large for an image, before it is read."""
  if size > MOST_BYTES:
    raise ValueError(
      f'it has {wording.human_bytes(size)}, and the file of an image at most'
      f' {wording.human_bytes(MOST_BYTES)}'
    )


def _index(
  found: Iterable[tuple], where: Sequence[array.array], path
) -> tuple[examples_lib.Texts, np.ndarray]:
  """Returns the names in `found`, in order; puts its numbers into `where`."""

  def names():
    for name, *numbers in found:
      for column, number in zip(where, numbers, strict=True):
        column.append(number)  # 8 bytes each.
      yield name

  return names_lib.in_order(names(), path)


def _arrays(names: examples_lib.Texts, order, where) -> dict[str, np.ndarray]:
  """Returns what the cache keeps of an index."""
  _, ends, text = names.array.buffers()
  ends = np.frombuffer(ends, np.int64)[: len(names) + 1]
  text = np.frombuffer(b'' if text is None else text, np.uint8)[: ends[-1]]
  numbers = {
    name: np.frombuffer(column, np.int64)[order].astype(dtype)
    for (name, dtype), column in zip(_NUMBERS.items(), where, strict=True)
  }
  return {'names': text, 'ends': ends, **numbers}


def _open(whole: Sequence[pathlib.Path], index: Mapping[str, np.ndarray]) -> tuple:
  """Returns names, read, stamp and files of a `store.Store`, by an index."""
  import pyarrow as pa

  text = map(pa.py_buffer, (index['ends'], index['names']))
  names = pa.LargeStringArray.from_buffers(len(index['ends']) - 1, *text)
  files, offsets, sizes = (index[name] for name in _NUMBERS)
  statuses = [[s.st_size, s.st_mtime_ns] for s in map(os.stat, whole)]

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

  def stamp(numbers: np.ndarray) -> list[list[int]]:
    return [statuses[place] for place in files[numbers]]

  return examples_lib.Texts(names), read, stamp, whole


def open_tars(path: pathlib.Path, files: Sequence[str] = ()) -> tuple:
  """Opens a tar, or these of a folder, as `_open`; refuses damage, and links for
  images."""
  whole = [path / file for file in files] or [path]
  prefixes = [f'{_stem(file)}/' for file in files] or ['']

  def make():
    return _arrays(*_scanned(path, zip(prefixes, whole, strict=True)))

  return _open(whole, parsed_cache.of_files(path, 'index', _TARS, whole, make))


def _scanned(path, named: Iterable[tuple[str, pathlib.Path]]):
  """Returns the names in tars in order, where each was, and the places.

  `named` has what names begin with, and the tars.
  """
  found = names_lib.Found()
  where = [array.array('q') for _ in _NUMBERS]

  def images():
    for place, (prefix, file) in enumerate(named):
      for name, *numbers in _images(file, file, found, prefix):
        yield name, place, *numbers

  names, order = names_lib.last_of_equal(*_index(images(), where, path))
  found.tell(path)
  return names, order, where


def _images(
  file, path, found: names_lib.Found, prefix: str, start: int = 0
) -> Iterator[tuple[str, int, int]]:
  """Yields name, offset and size of the images of a tar, and of the tars in it."""
  opened = {'name' if isinstance(file, pathlib.Path) else 'fileobj': file}
  try:
    with tarfile.open(**opened, mode='r:') as archive:
      while (member := archive.next()) is not None:
        archive.members.clear()  # It would keep all.
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
          yield name, offset, member.size
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


def is_records(name: str) -> bool:
  """Whether a file is a TFRecord file, by its name."""
  return bool(_RECORD_FILE.search(name))


def files_of_tff(path: pathlib.Path) -> list[str]:
  """Returns the files of TFF's layout in a folder; none if it has another."""
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
  """Opens a TFRecord file, or these of a folder; returns `_open`'s and has_users.

  Raises `errors.InputError` if a file is damaged or compressed, or an example
  lacks a feature that others have.
  """
  whole = [path / file for file in files] or [path]
  named = [features.get(noun, '') for noun in record_features.KNOWN]

  def make():
    return _records(path, whole, files or [path.name], features)

  index = parsed_cache.of_files(path, 'index', _RECORDS, whole, make, features=named)
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
      is_test = bool(_TEST.search(name))
      # Only files of TFF's layout have no suffix.
      of_file = file.name if len(files) > 1 and not is_records(name) else None
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
          own = '/'.join([*(urllib.parse.quote(n, ' ') for n in above), own])
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
  """Yields each example's place of the image in the file, and its values by kind."""
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
      # After the record's length and a checksum of that.
      yield start + 12 + data.index(values['image']), values
      start += 16 + len(data)
  except (tf.errors.DataLossError, message.DecodeError) as e:
    raise errors.InputError(
      f'{file} is no TFRecord file of tf.train.Example that can be read ({e}); get a damaged'
      ' one again, and unpack a compressed one, which cannot be read in place'
    ) from e


def _value(feature, is_text: bool) -> bytes | str | None:
  """Returns the one value of a feature; None: it has none of this form."""
  values = feature and getattr(feature, feature.WhichOneof('kind') or '', None)
  value = values.value[0] if values and len(values.value) == 1 else None
  if type(value) is bytes:
    return value.decode(errors='replace') if is_text else value
  return str(value) if is_text and type(value) is int else None


def with_users(images: examples_lib.Examples) -> examples_lib.Examples:
  """Returns images of records with the users of those that train, by their ids."""
  codes, trains = examples_lib.Codes(), images.train
  for block in examples_lib.blocks(len(trains)):
    codes.add(urllib.parse.unquote(name.split('/')[-2]) for name in images.ids.take(trains[block]))
  users = np.full(len(images), -1, np.int32)
  users[trains] = codes.codes()
  return dataclasses.replace(images, users=users, user_names=codes.names)
