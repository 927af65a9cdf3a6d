"""The known sets of the Extreme Classification Repository, and their files.

Bhatia et al.: The extreme classification repository, 2016,
http://manikvarma.org/downloads/XC/XMLRepository.html.
"""

import dataclasses
import os
import pathlib
from collections.abc import Iterator
from collections.abc import Mapping

from tff_xc import errors


@dataclasses.dataclass(frozen=True)
class Counts:
  """The counts of a complete copy; a copy with other counts is refused.

  Attributes:
    train, test: numbers of examples, including those without labels.
    features: D.
    labels: L.
  """

  train: int
  test: int
  features: int
  labels: int


@dataclasses.dataclass(frozen=True)
class KnownSet:
  """A set as its owners distribute it.

  Attributes:
    counts: the counts of the version that the papers use.
    names: names of its folder, with which its files' names begin too; upper or
      lower case does not matter.
    a, b: constants of the propensities. The KDD 2016 paper fits them on
      Wikipedia (0.5, 0.4) and Amazon (0.6, 2.6) and uses their mean (0.55, 1.5)
      for other sets. Published PSP@k follow a custom: WikiLSHTC uses the
      constants of Wikipedia, product-to-product sets those of Amazon. All
      others, including AmazonCat, Wiki10 and WikiSeeAlso, use the mean.
  """

  counts: Counts
  names: tuple[str, ...]
  a: float = 0.55
  b: float = 1.5


SETS: Mapping[str, KnownSet] = {
  'delicious': KnownSet(Counts(12_920, 3_185, 500, 983), ('delicious',)),
  'bibtex': KnownSet(Counts(4_880, 2_515, 1_836, 159), ('bibtex',)),
  'eurlex-4k': KnownSet(
    Counts(15_539, 3_809, 5_000, 3_993), ('eurlex-4k', 'eurlex')
  ),
  'wiki10-31k': KnownSet(
    Counts(14_146, 6_616, 101_938, 30_938), ('wiki10-31k', 'wiki10')
  ),
  'amazoncat-13k': KnownSet(
    Counts(1_186_239, 306_782, 203_882, 13_330), ('amazoncat-13k', 'amazoncat')
  ),
  'amazon-670k': KnownSet(
    Counts(490_449, 153_025, 135_909, 670_091),
    ('amazon-670k', 'amazon670k', 'amazon'),
    a=0.6,
    b=2.6,
  ),
  'wikilshtc-325k': KnownSet(
    Counts(1_778_351, 587_084, 1_617_899, 325_056),
    ('wikilshtc-325k', 'wikilshtc'),
    a=0.5,
    b=0.4,
  ),
  'lf-amazontitles-131k': KnownSet(
    Counts(294_805, 134_835, 40_000, 131_073),
    ('lf-amazontitles-131k',),
    a=0.6,
    b=2.6,
  ),
  'lf-wikiseealsotitles-320k': KnownSet(
    Counts(693_082, 177_515, 40_000, 312_330), ('lf-wikiseealsotitles-320k',)
  ),
}


@dataclasses.dataclass(frozen=True)
class Files:
  """The files of a set.

  Attributes:
    train: one file of examples, or a file of features and one of labels.
    test: likewise.
  """

  train: tuple[pathlib.Path, ...]
  test: tuple[pathlib.Path, ...]


_PAIRS = tuple(
  (f'{part}_X_Xf.txt', f'{part}_X_Y.txt') for part in ('trn', 'tst')
)


def find(name: str, data_dir: str | os.PathLike) -> Files:
  """Finds the files of a set without opening them.

  They lie in `data_dir`, in `data_dir/xc`, or in a folder of one of these with
  the name of the set. They are `<set>_train.txt` and `<set>_test.txt`. In a
  folder with the name of the set they may also be `train.txt` and `test.txt`,
  or `trn_X_Xf.txt`, `trn_X_Y.txt`, `tst_X_Xf.txt` and `tst_X_Y.txt`. Each may
  be compressed, with `.gz` after its name. `filter_labels_*.txt` are not read.

  Args:
    name: a key of `SETS`.
    data_dir: the directory of all data.

  Raises:
    errors.InputError: there is no set of that name; a file is missing.
  """
  if name not in SETS:
    raise errors.InputError(
      f'no set is named {name!r}; there are {", ".join(SETS)}'
    )
  names, data_dir = SETS[name].names, pathlib.Path(data_dir)
  own, shared = [], []
  for place in (data_dir / 'xc', data_dir):
    own.extend(_folders(place, names))
    shared.append(place)
  if data_dir.resolve().name.lower() in names:
    own.append(data_dir)
  partly = None
  for folder, wanted in _wanted(own, shared, names):
    present = _files(folder)
    found = [tuple(_pick(folder, present, n) for n in part) for part in wanted]
    missing = [
      n
      for n, f in zip(sum(wanted, ()), sum(found, ()), strict=True)
      if f is None
    ]
    if not missing:
      return Files(*found)
    if len(missing) < len(sum(wanted, ())) and partly is None:
      partly = folder, missing
  if partly:
    raise errors.InputError(
      f'{partly[0]} has only a part of {name}: {" and ".join(partly[1])} '
      f'{"is" if len(partly[1]) == 1 else "are"} missing; put them there'
    )
  raise errors.InputError(
    f'no {name} in {data_dir}: looked there and in {data_dir / "xc"} for '
    f'{" or ".join(n + "_train.txt" for n in names)}, and for a folder '
    f'{" or ".join(names)} with one of these, train.txt or trn_X_Xf.txt (and '
    'the like for the test); get the files from '
    'http://manikvarma.org/downloads/XC/XMLRepository.html, or name another '
    'directory with --data_dir'
  )


def _wanted(own, shared, names) -> Iterator:
  """Yields folders with the names of train and test files to look for."""
  for folder in own:
    yield folder, _PAIRS
    yield folder, (('train.txt',), ('test.txt',))
  for folder in own + shared:
    for n in names:
      yield folder, ((f'{n}_train.txt',), (f'{n}_test.txt',))


def _folders(place: pathlib.Path, names) -> list[pathlib.Path]:
  if not place.is_dir():
    return []
  return sorted(
    p for p in place.iterdir() if p.name.lower() in names and p.is_dir()
  )


def _files(folder: pathlib.Path) -> dict[str, pathlib.Path]:
  """Returns the folder's files by their names in lower case."""
  if not folder.is_dir():
    return {}
  return {p.name.lower(): p for p in folder.iterdir() if p.is_file()}


def _pick(folder, present, name: str) -> pathlib.Path | None:
  name = name.lower()
  return present.get(name, present.get(f'{name}.gz'))
