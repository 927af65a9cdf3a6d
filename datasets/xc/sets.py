"""Finds the data sets of the Extreme Classification Repository, and checks their headers.

Bhatia et al.: The extreme classification repository, 2016,
http://manikvarma.org/downloads/XC/XMLRepository.html.

The module imports neither NumPy nor TensorFlow. `datasets.xc.text` describes the file
formats and reads the files.
"""

import codecs
import os
import pathlib
from collections.abc import Iterator, Mapping
from typing import BinaryIO, NamedTuple

from datasets.readers import zipped
from tff_xc import errors

# The numbers in the header (the first line) of each file format.
FORMS = {'examples': 'N D L', 'features': 'N D', 'labels': 'N L'}
LARGEST = 2**31 - 1  # The largest number in a header.
ADVICE = 'check its permissions, or download it again'


class Header(NamedTuple):
  """The numbers N, D and L of a file's first line. A missing number is 0."""

  num_examples: int
  num_features: int
  num_labels: int


class Counts(NamedTuple):
  """The numbers in the headers of a complete copy. Examples without labels count, too."""

  train: int
  test: int
  features: int
  labels: int


class KnownSet(NamedTuple):
  """A data set of the repository."""

  counts: Counts  # The numbers of the version that papers use.
  # The possible names of the data set's folder, in upper or lower case. The names of its
  # files begin with one of these names.
  names: tuple[str, ...]
  # The constants a and b of the propensities. Jain et al. (KDD 2016) fit a and b on Wikipedia
  # (0.5, 0.4) and Amazon (0.6, 2.6), and use the mean for other data sets. Published values
  # of PSP@k use the constants of Wikipedia for WikiLSHTC, and the constants of Amazon for
  # product-to-product data sets. Published values use the mean for all other data sets,
  # including AmazonCat, Wiki10 and WikiSeeAlso.
  a: float = 0.55
  b: float = 1.5


_AMAZON = 0.6, 2.6
# For each data set: the numbers of training examples, test examples, features and labels; its
# names; and the constants a and b, unless they are the mean.
SETS: Mapping[str, KnownSet] = {
  names[0]: KnownSet(Counts(*counts), names, *constants)
  for counts, names, *constants in (
    ((12_920, 3_185, 500, 983), ('delicious',)),
    ((4_880, 2_515, 1_836, 159), ('bibtex',)),
    ((15_539, 3_809, 5_000, 3_993), ('eurlex-4k', 'eurlex')),
    ((14_146, 6_616, 101_938, 30_938), ('wiki10-31k', 'wiki10')),
    ((1_186_239, 306_782, 203_882, 13_330), ('amazoncat-13k', 'amazoncat')),
    ((490_449, 153_025, 135_909, 670_091), ('amazon-670k', 'amazon670k', 'amazon'), *_AMAZON),
    ((1_778_351, 587_084, 1_617_899, 325_056), ('wikilshtc-325k', 'wikilshtc'), 0.5, 0.4),
    ((294_805, 134_835, 40_000, 131_073), ('lf-amazontitles-131k',), *_AMAZON),
    ((693_082, 177_515, 40_000, 312_330), ('lf-wikiseealsotitles-320k',)),
  )
}


def find(
  name: str, data_dir: str | os.PathLike, counts: Counts | None = None
) -> list[tuple[pathlib.Path, ...]]:
  """Finds the training and the test files of a data set, and checks their headers.

  `name` is a key of `SETS`. The headers must have the numbers `counts` or, if `counts` is None,
  the numbers in `SETS`.
  The files are `<name>_train.txt` and `<name>_test.txt`. They are in `data_dir`, in
  `data_dir/xc`, or in a subfolder of either that has the name of the data set. In such a
  subfolder the files may also be `train.txt` and `test.txt`, or `trn_X_Xf.txt`,
  `trn_X_Y.txt`, `tst_X_Xf.txt` and `tst_X_Y.txt`. Each file may be compressed, with `.gz`
  after its name. The files `filter_labels_*.txt` are ignored.
  """
  if name not in SETS:
    raise errors.InputError(f'no set is named {name!r}; there are {", ".join(SETS)}')
  files = _found(name, pathlib.Path(data_dir))
  counts = counts or SETS[name].counts
  for paths, examples in zip(files, counts[:2], strict=True):
    wanted = (examples, counts.features, counts.labels)
    for path, form in forms(paths):
      header = read_header(path, form)
      for noun, found, want in zip(FORMS, header, wanted, strict=True):
        if found != want and (form in ('examples', noun) or noun == 'examples'):
          raise errors.InputError(
            f'{path}, line 1: found {found:,} {noun}, expected {want:,}; this is'
            ' another version of the set, get the one of these counts'
          )
  return files


def forms(paths: tuple[pathlib.Path, ...]) -> Iterator[tuple[pathlib.Path, str]]:
  """Returns each of the training or test files with its format, a key of `FORMS`."""
  names = ('examples',) if len(paths) == 1 else ('features', 'labels')
  return zip(paths, names, strict=True)


def read_header(path: str | os.PathLike, form: str = 'examples') -> Header:
  """Reads a file's header; raises InputError if the header is missing, damaged or malformed."""
  with open_file(path) as file:
    return parse_header(file, path, form)


def open_file(path: str | os.PathLike) -> BinaryIO:
  """Opens a text file of the repository; raises InputError if the file is missing."""
  path = pathlib.Path(path)
  if not path.is_file():
    raise errors.InputError(
      f'{path} is no file; give a text file of the Extreme Classification Repository'
    )
  with zipped.readable(path, ADVICE):
    return zipped.open_bytes(path)


def parse_header(file: BinaryIO, path, form: str) -> Header:
  """Reads the header of an open file, like `read_header`."""
  with zipped.readable(path, ADVICE):
    line = file.readline(200).removeprefix(codecs.BOM_UTF8)
  fields, names = line.split(), FORMS[form].split()
  if (
    len(fields) != len(names)
    or not all(field.isdigit() for field in fields)
    or max(map(int, fields)) > LARGEST
  ):
    shown = line.rstrip().decode('utf-8', 'backslashreplace')[:60]
    raise errors.InputError(
      f'{path}, line 1: expected the header {FORMS[form]!r} ({len(names)} whole '
      f'numbers below 2^31), found {shown!r}; give a file of the Extreme '
      f'Classification Repository that holds {form}'
    )
  numbers = dict(zip(names, map(int, fields), strict=True))
  return Header(*(numbers.get(name, 0) for name in 'NDL'))


def _found(name: str, data_dir: pathlib.Path) -> list[tuple[pathlib.Path, ...]]:
  names = SETS[name].names
  for folder, parts in _places(data_dir, names):
    there = {p.name.lower(): p for p in _entries(folder) if p.is_file()}
    found = [
      tuple(there.get(n, there.get(f'{n}.gz')) for n in map(str.lower, part)) for part in parts
    ]
    if not any(None in part for part in found):
      return found
  raise errors.InputError(
    f'no {name} in {data_dir}: looked there and in {data_dir / "xc"} for both of '
    f'{" or ".join(n + "_train.txt, " + n + "_test.txt" for n in names)}, and for a folder '
    f'{" or ".join(names)} with these, train.txt and test.txt, or trn_X_Xf.txt and '
    'the like; get the files from '
    'http://manikvarma.org/downloads/XC/XMLRepository.html, or name another '
    'directory with --data_dir'
  )


def _places(data_dir: pathlib.Path, names) -> Iterator:
  """Yields the folders to search, each with the names of the training and test files."""
  shared = [data_dir / 'xc', data_dir]
  own = [
    folder
    for place in shared
    for folder in sorted(_entries(place))
    if folder.name.lower() in names and folder.is_dir()
  ]
  if data_dir.resolve().name.lower() in names:
    own.append(data_dir)
  pairs = [(f'{p}_X_Xf.txt', f'{p}_X_Y.txt') for p in ('trn', 'tst')]
  for folder in own:
    yield folder, pairs
    yield folder, [('train.txt',), ('test.txt',)]
  for folder in own + shared:
    for n in names:
      yield folder, [(f'{n}_train.txt',), (f'{n}_test.txt',)]


def _entries(folder: pathlib.Path) -> list[pathlib.Path]:
  return list(folder.iterdir()) if folder.is_dir() else []
