"""Clients and test examples of one's own data, as `--split` says.

  (empty)   the users of the data
  class     a client for each class
  iid:K     K clients with random examples, as many each
  FILE.csv  a split, user_id,image_id,class; see `split_path` for other forms
  FOLDER    what `launch.make_splits` writes: federated_train.csv, and test.csv
            and classes.csv if they are there; of images also retrieval.csv

`--test_file` or the split's test.csv names the test examples;
`--test_fraction` holds some out, the same share of each class.
"""

import os
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from datasets import tables
from datasets.splits import by_class
from datasets.splits import by_user
from datasets.splits import hold_out
from datasets.splits import listing as listing_lib
from datasets.splits import names as names_lib
from datasets.splits import split_folder
from tff_xc import errors
from tff_xc import wording
from tff_xc.data import partition as partition_lib

IID = 'iid:'
# Streams of numpy generators: [seed, stream].
_IID, _TEST = range(2)


class Choice(NamedTuple):
  """How one's own data become clients and a test part.

  Attributes:
    split: see above.
    test_file: the test examples, a CSV `image_id,class`; empty: those of the
      split or of the data.
    test_fraction: the share of the training examples that are held out for the
      test; 0: none.
    seed: of the clients and of the examples held out.
    test_examples: the size of a sample of the test, see `hold_out.sample`; 0: all.
  """

  split: str = ''
  test_file: str = ''
  test_fraction: float = 0.0
  seed: int = 0
  test_examples: int = 0

  @property
  def is_file(self) -> bool:
    """Whether the split is a file or a folder."""
    return bool(self.split) and self.split != 'class' and not self.iid

  @property
  def iid(self) -> int:
    """K of `iid:K`, else 0."""
    text = self.split.removeprefix(IID)
    return int(text) if text != self.split else 0


USERS = Choice()


def check_test_file(test_file: str, path: str | os.PathLike) -> None:
  """Refuses the file of the training examples as that of the test."""
  if os.path.exists(test_file) and os.path.samefile(test_file, path):
    raise errors.InputError(
      f'--test_file={test_file} is the file of the training examples; name the'
      ' file of the test examples, or give --test_fraction instead'
    )


class Labelled(NamedTuple):
  """Numbered examples, before some of them become clients.

  Attributes:
    labels: int32 [N].
    class_names: [n].
    ids: what a split calls them.
    users: int32 [N], places in `user_names`, -1 for nobody; None: unknown.
    user_names: the users.
    test: numbers of the test examples, empty if the data keep them apart; None:
      the data have no test part.
    retrieval: numbers of the examples of other classes, whose labels are at least
      n; None: there is no such part.
  """

  labels: np.ndarray
  class_names: Sequence[str]
  ids: listing_lib.Texts | range
  users: np.ndarray | None = None
  user_names: Sequence[str] = ()
  test: np.ndarray | None = None
  retrieval: np.ndarray | None = None


class Parts(NamedTuple):
  """Who trains on which examples, and which are the test.

  Attributes:
    clients: with the numbers of their training examples.
    test: numbers of examples; None: there is no test among them.
    held_out: the same clients with their own of the test; None: not known.
  """

  clients: partition_lib.Partition
  test: np.ndarray | None = None
  held_out: partition_lib.Partition | None = None


def parts(
  data: Labelled, choice: Choice, where: str, to_name_users: str
) -> Parts:
  """Returns the clients and the test.

  Users without training examples are no clients.

  Args:
    data: the examples.
    choice: how to make clients of them.
    where: the data, for errors.
    to_name_users: how the data could name users, for errors.

  Raises:
    errors.InputError: there are no users; two test parts are asked for; a split
      is damaged or does not fit the data.
  """
  if choice.is_file:
    data = _of_split(data, choice, where)
  elif choice.test_file:
    data = with_test(data, choice.test_file, where)
  users, test = data.users, data.test
  trains = np.ones(len(data.labels), bool)
  if test is not None:
    trains[test] = False
  by_users = choice.is_file or not choice.split
  if by_users:
    if users is None:
      raise errors.InputError(
        f'{where} does not say whose the examples are; {to_name_users}give'
        ' --split, a FILE.csv or folder of `python -m launch.make_splits`, or'
        ' --split=class, or --split=iid:100 for 100 clients'
      )
    trains &= users >= 0
  if choice.test_fraction:
    if test is not None:
      raise errors.InputError(
        f'{where} has test examples, or --split or --test_file names them; leave'
        ' out --test_fraction'
      )
    labels = np.where(trains, data.labels, -1)
    seed = [choice.seed, _TEST]
    test = hold_out.by_fraction(labels, choice.test_fraction, seed)
    trains[test] = False
  test = sampled(test, choice, where)
  if by_users:
    trained = np.where(trains, users, -1)
    some = np.unique(trained[trained >= 0])
    if not len(some):
      raise errors.InputError(
        f'{where}: no training example has a user (NA is nobody); give other users,'
        ' or --split=class, or --split=iid:100'
      )
    clients = by_user.of_users(trained, data.user_names, some)
    if test is None:
      return Parts(clients)
    tested = np.full(len(users), -1)
    tested[test] = users[test]
    return Parts(clients, test, by_user.of_users(tested, data.user_names, some))
  if choice.iid:
    return Parts(at_random(np.flatnonzero(trains), choice), test)
  labels = np.where(trains, data.labels, -1)
  return Parts(by_class.partition(labels, len(data.class_names)), test)


def sampled(
  test: np.ndarray | None, choice: Choice, where: str
) -> np.ndarray | None:
  """Returns the test examples that `choice.test_examples` leaves."""
  if not choice.test_examples:
    return test
  if test is None:
    raise errors.InputError(
      f'--test_examples={choice.test_examples}: {where} has no test part; give'
      ' --test_file or --test_fraction, or leave out --test_examples'
    )
  return hold_out.sample(test, choice.test_examples)


def described(
  size: int, noun: str, class_names: Sequence, tests: int, clients: int
) -> str:
  """Returns `60 images of 4 classes (cat, dog, ...), 6 of them test; 6 clients`.

  Args:
    size: the number of all examples.
    noun: what one of them is.
    class_names: of all classes, text or numbers.
    tests: how many examples are the test part.
    clients: their number; 0: nobody has said yet whose the examples are.
  """
  first = [wording.shown(name) for name in class_names[:3]]
  first = [n if len(n) < 30 else f'{n[:27]}...' for n in first]
  if len(class_names) > len(first):
    first.append('...')
  test = f'{tests:,} of them test' if tests else 'no test part'
  whose = '--split must say whose each is'
  if clients:
    whose = wording.count(clients, 'client')
  return (
    f'{wording.count(size, noun)} of {wording.count(len(class_names), "class")}'
    f' ({", ".join(first)}), {test}; {whose}'
  )


def with_test(data: Labelled, test_file: str, where: str) -> Labelled:
  """Returns the examples with those of a CSV `image_id,class` as the test.

  Raises:
    errors.InputError: the file is missing, damaged, or does not fit the data.
  """
  listing = split_folder.read_test(test_file)
  return data._replace(test=_numbers(data, listing, test_file, where))


def _of_split(data: Labelled, choice: Choice, where: str) -> Labelled:
  """Returns the examples with the users and the test of a split."""
  split = split_folder.read(choice.split, choice.test_file)
  if split.retrieval is not None:
    raise errors.InputError(
      f'{choice.split} has a {split_folder.RETRIEVAL}, which only images have'
      f' (--task=images), and {where} is other data; take that file away'
    )
  numbers = _numbers(data, split.train, choice.split, where, split)
  users = np.full(len(data.labels), -1, np.int32)
  users[numbers] = split.train.users
  data = data._replace(users=users, user_names=split.train.user_names)
  if data.test is not None or split.test is None:
    return data
  test = _numbers(data, split.test, choice.split, where, split)
  if both := np.flatnonzero(users[test] >= 0).tolist():
    raise errors.InputError(
      f'{choice.split}: example {_shown(data.ids, test[both[0]])} is a training'
      ' and a test example; give each example to one part'
    )
  return data._replace(test=test)


def _numbers(
  data: Labelled,
  listing,
  file,
  where: str,
  split: split_folder.Split | None = None,
) -> np.ndarray:
  """Returns the numbers of a file's examples; their classes must agree."""
  numbers = find(data.ids, listing.ids)
  if (numbers < 0).any():
    bad = listing_lib.ids_of(listing.ids, np.flatnonzero(numbers < 0)[:1])[0]
    raise errors.InputError(
      f'{file} has the image_id {bad!r}, and {where} has no such example: its'
      f' ids look like {_shown(data.ids, 0)}; give the split of these data, or'
      ' the --id_column that it was made with'
    )
  _, first = np.unique(numbers, return_index=True)
  if len(first) < len(numbers):
    row = np.setdiff1d(np.arange(len(numbers)), first)[0]
    raise errors.InputError(
      f'{file} has the example {_shown(data.ids, numbers[row])} twice, the second'
      f' time as {_shown(listing.ids, row)}; leave one out'
    )
  # Names of folders, too, are compared with those of a table.
  place = {
    names_lib.joined(tables.plain(name)): i
    for i, name in enumerate(data.class_names)
  }
  names = split.class_names if split else listing.class_names
  texts = split.class_ids if split else listing.class_names
  same = np.array(
    [place.get(names_lib.joined(name), -1) for name in names], np.int32
  )
  if list(names) == list(texts) and (same < 0).any():
    # Without names, the numbers that `launch.make_splits` gives to classes.
    same = np.array([_whole(text, len(place)) for text in texts], np.int32)
  right = data.labels[numbers]
  if wrong := np.flatnonzero(same[listing.labels] != right).tolist():
    row = wrong[0]
    raise errors.InputError(
      f'{file}: example {_shown(listing.ids, row)} has class'
      f' {names[listing.labels[row]]!r} here and'
      f' {data.class_names[right[row]]!r} in {where}; give the split of these'
      ' data'
    )
  return numbers


def find(
  ids: listing_lib.Texts | range, wanted: listing_lib.Texts | range
) -> np.ndarray:
  """Returns int64, the first place in `ids` of each id wanted, or -1."""
  import pyarrow as pa
  import pyarrow.compute

  if isinstance(wanted, range):
    wanted = listing_lib.texts([list(map(str, wanted))])
  if isinstance(ids, range):
    places = [_whole(text, len(ids)) for text in wanted.array.to_pylist()]
    return np.array(places, np.int64)
  found = pa.compute.index_in(_joined(wanted), value_set=_joined(ids))
  return found.fill_null(-1).to_numpy().astype(np.int64)


def _joined(texts: listing_lib.Texts):
  """Returns arrow's array of `names.joined` of each text."""
  import pyarrow.compute

  if pyarrow.compute.all(pyarrow.compute.string_is_ascii(texts.array)).as_py():
    return texts.array  # Most are, and copies of many millions are large.
  return pyarrow.compute.utf8_normalize(texts.array, form='NFC')


def _whole(text: str, size: int) -> int:
  """Returns a number below `size`, or -1; int() may refuse long numbers."""
  number = int(text) if text.isdecimal() and len(text) < 20 else -1
  return number if number < size else -1


def _shown(ids, number: int) -> str:
  return repr(listing_lib.ids_of(ids, np.array([number]))[0])


def at_random(numbers: np.ndarray, choice: Choice) -> partition_lib.Partition:
  """Returns the clients of `iid:K`, who have these examples.

  Raises:
    errors.InputError: there are fewer than K.
  """
  if choice.iid > len(numbers):
    raise errors.InputError(
      f'--split={choice.split}: there are'
      f' {wording.count(len(numbers), "training example")}; take as many clients or'
      ' fewer'
    )
  random = np.random.default_rng([choice.seed, _IID])
  clients = np.array_split(random.permutation(numbers), choice.iid)
  width = len(str(choice.iid - 1))
  return partition_lib.Partition(
    [f'client/{k:0{width}d}' for k in range(choice.iid)],
    np.cumsum([0, *map(len, clients)]),
    np.concatenate(list(map(np.sort, clients))),
  )
