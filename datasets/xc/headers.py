"""The first lines of the repository's text files, and sets with the right counts.

Importing this imports neither NumPy nor TensorFlow; `datasets.xc.text` has the forms.
"""

import codecs
import contextlib
import os
import pathlib
from collections.abc import Iterator
from typing import BinaryIO
from typing import NamedTuple

from datasets import zip_members
from datasets.xc import sets as xc_sets
from tff_xc import errors

FORMS = ('examples', 'features', 'labels')
LARGEST = 2**31 - 1  # Of numbers in a file.


class Header(NamedTuple):
  """The numbers of a file's first line.

  Attributes:
    num_examples: N.
    num_features: D; 0 in a file of labels.
    num_labels: L; 0 in a file of features.
  """

  num_examples: int
  num_features: int
  num_labels: int


def find(
  name: str, data_dir: str | os.PathLike, counts: xc_sets.Counts | None = None
) -> xc_sets.Files:
  """Finds the files of a set and reads their first lines.

  Args:
    name: as in `clients.load`.
    data_dir: as in `clients.load`.
    counts: as in `clients.load`.

  Raises:
    errors.InputError: files are missing or have other counts.
  """
  files = xc_sets.find(name, data_dir)
  _check_counts(files, counts or xc_sets.SETS[name].counts)
  return files


def read_header(path: str | os.PathLike, form: str = 'examples') -> Header:
  """Reads a file's first line; see `text.read`."""
  with opened(pathlib.Path(path)) as file:
    return parse(file, path, form)


@contextlib.contextmanager
def opened(path: pathlib.Path) -> Iterator[BinaryIO]:
  """Opens a file to read; turns any error of reading into an InputError."""
  if not path.is_file():
    raise errors.InputError(
      f'{path} is no file; give a text file of the Extreme Classification '
      'Repository'
    )
  try:
    with zip_members.open_bytes(path) as file:
      yield file
  except zip_members.DAMAGE as e:
    raise errors.InputError(
      f'{path} cannot be read ({e}); check its permissions, or download it '
      'again'
    ) from e


def parse(file: BinaryIO, path, form: str) -> Header:
  """Reads the first line of an open file; `path` is named in errors."""
  if form not in FORMS:
    raise ValueError(f'form is {form!r}, expected one of {FORMS}')
  names = {'examples': 'N D L', 'features': 'N D', 'labels': 'N L'}[form]
  line = file.readline(200).removeprefix(codecs.BOM_UTF8)
  fields = line.split()
  wanted = len(names.split())
  if (
    len(fields) != wanted
    or not all(f.isdigit() for f in fields)
    or max(map(int, fields)) > LARGEST
  ):
    shown = line.rstrip().decode('utf-8', 'backslashreplace')[:60]
    raise errors.InputError(
      f'{path}, line 1: expected the header {names!r} ({wanted} whole numbers '
      f'below 2^31), found {shown!r}; give a file of the Extreme '
      f'Classification Repository that holds {form}'
    )
  numbers = [int(f) for f in fields]
  if form == 'labels':
    numbers.insert(1, 0)
  return Header(*numbers, *([0] if form == 'features' else []))


def _check_counts(files: xc_sets.Files, expected: xc_sets.Counts) -> None:
  """Compares the headers, before anything is parsed."""
  for part in ('train', 'test'):
    wanted = Header(getattr(expected, part), expected.features, expected.labels)
    paths = getattr(files, part)
    for path, form in forms(paths):
      header = read_header(path, form)
      for what, found, want in zip(
        ('examples', 'features', 'labels'), header, wanted, strict=True
      ):
        absent = {'features': 'labels', 'labels': 'features'}.get(form)
        if found != want and what != absent:
          raise errors.InputError(
            f'{path}, line 1: found {found:,} {what}, expected {want:,}; this '
            'is another version of the set, get the one of these counts'
          )


def forms(paths: tuple[pathlib.Path, ...]):
  """Returns the form of each file of a part."""
  return zip(
    paths,
    FORMS[:1] if len(paths) == 1 else FORMS[1:],
    strict=True,
  )
