"""What a split rule is: a record, with its flags and what it makes.

Importing this imports no NumPy.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from collections.abc import Mapping
from typing import TYPE_CHECKING
from typing import Any
from typing import NamedTuple

if TYPE_CHECKING:
  import pathlib

  import numpy as np

  from datasets.splits import inputs
  from datasets.splits import listing as listing_lib
  from tff_xc.data import partition as partition_lib

_MOST = 2**31 - 1


class Flag(NamedTuple):
  """A setting of a rule.

  Attributes:
    default: its value if it is not given; its type is the flag's.
    meaning: one line for `--help`.
    least, most: bounds of numbers.
    choices: the values of text.
  """

  default: Any
  meaning: str
  least: float = 1
  most: float = _MOST
  choices: tuple[str, ...] = ()


class Split(NamedTuple):
  """What a rule makes of a listing.

  Attributes:
    train: the clients.
    test: int64 [k], numbers of examples for the test; None: not the rule's.
    classes: int [n], the classes that the split has, ascending; the others are
      left out, also of the input's test part. None: all.
  """

  train: partition_lib.Partition
  test: np.ndarray | None = None
  classes: np.ndarray | None = None


class Published(NamedTuple):
  """What is known of a published split.

  Attributes:
    input: what its input has, by names of `Listing.facts`.
    counts: what it has, by names of a split's summary.
    drawn: names in `counts` that a draw decides which was not published.
    why: why a split of this input differs all the same; empty: it does not.
  """

  input: Mapping[str, Any]
  counts: Mapping[str, int]
  drawn: tuple[str, ...] = ()
  why: str = ''


@dataclasses.dataclass(frozen=True)
class Rule:
  """A way to make clients.

  Attributes:
    summary: one line for `--help`.
    split: (listing, seed, **settings) -> Split. Examples may go to nobody.
    flags: its settings by name.
    labels: 'one' if each example must have one label (of sets of labels one is
      drawn), 'sets' if each must have a set, '' if either will do.
    users: whether it needs the examples' users.
    makes_test: whether it makes the test part itself.
    read: (path, columns) -> listing; None: `inputs.read`, which takes all kinds.
    has_lists: whether lists in the input name its images, so that others beside
      them do not count.
    published: the split that the rule makes with its default settings of the
      published data; None: there is none.
  """

  summary: str
  split: Callable[..., Split]
  flags: Mapping[str, Flag] = dataclasses.field(default_factory=dict)
  labels: str = 'one'
  users: bool = False
  makes_test: bool = False
  read: Callable[[pathlib.Path, inputs.Columns], listing_lib.Listing] | None = (
    None
  )
  has_lists: bool = False
  published: Published | None = None
