"""Lists the images of ImageNet-21k, wherever they lie.

  n01440764/n01440764_10026.JPEG  in a folder, tar or zip
  n01440764.tar                   in a folder or a tar (`datasets.images.packed`)
  a text file                     a line for each image, SYNSET/NAME.JPEG; or .gz

All give the same listing, in the order of the ids' bytes. The text file needs no
images at all.
"""

import itertools
import os
import pathlib
from collections.abc import Iterator

import numpy as np

from datasets import zip_members
from datasets.images import names as names_lib
from datasets.images import store as store_lib
from datasets.splits import listing as listing_lib
from tff_xc import errors

_LISTS = ('.txt', '.txt.gz', '.lst', '.lst.gz')
_SUFFIXES = '|'.join(suffix[1:] for suffix in names_lib.SUFFIXES)
_AN_IMAGE = rf'^((\./)?([^/]+/)+[^/]+\.(?i:{_SUFFIXES}))?$'
_LINES = 1 << 16


def read(path: str | os.PathLike) -> listing_lib.Listing:
  """Lists the images; a class is a folder.

  Raises:
    errors.InputError: the input cannot be read or has no images; a line of the
      text file is no image in a folder, or is there twice.
  """
  path = pathlib.Path(path)
  if path.name.lower().endswith(_LISTS) and not path.is_dir():
    listing = names_lib.of_ids(path, _ids(path))
  else:
    listing = store_lib.read(path)
  facts = {'images': len(listing), 'classes': len(listing.class_names)}
  return listing_lib.Listing(
    listing.labels,
    listing.class_names,
    listing.ids,
    test=listing.test,
    facts=facts,
  )


def _ids(path: pathlib.Path) -> listing_lib.Texts:
  """Returns the lines of a text file, in order."""
  names, _ = names_lib.in_order(filter(None, _lines(path)), path)
  if not len(names):
    raise errors.InputError(
      f'{path} has no lines; give SYNSET/NAME.JPEG in each'
    )
  if twice := np.flatnonzero(names_lib.equal_to_next(names))[:1].tolist():
    [name] = names.take(twice)
    before, line, *_ = [i for i, n in enumerate(_lines(path), 1) if n == name]
    raise errors.InputError(
      f'{path}, line {line:,}: {name!r} is in line {before:,} already; list each'
      ' image once'
    )
  return names


def _lines(path: pathlib.Path) -> Iterator[str]:
  """Yields the names, and '' for blank lines."""
  count = 0
  try:
    with zip_members.open_text(path) as file:
      every = map(str.rstrip, zip_members.lines(file, path))
      while lines := list(itertools.islice(every, _LINES)):
        _check(path, lines, count)
        count += len(lines)
        yield from (line.removeprefix('./') for line in lines)
  except zip_members.DAMAGE as e:
    raise errors.InputError(
      f'{path} cannot be read ({e}); give text, SYNSET/NAME.JPEG in each line'
    ) from e


def _check(path: pathlib.Path, lines: list[str], before: int) -> None:
  import pyarrow as pa
  import pyarrow.compute

  right = pyarrow.compute.match_substring_regex(
    pa.array(lines, pa.large_string()), _AN_IMAGE
  )
  if bad := np.flatnonzero(~right.to_numpy(zero_copy_only=False)).tolist():
    raise errors.InputError(
      f'{path}, line {before + bad[0] + 1:,}: {lines[bad[0]][:60]!r} is no'
      ' SYNSET/NAME.JPEG; mend it, or leave it out'
    )
