"""The split rules of `launch.make_splits`, by name, with their flags.

A rule is a record and a line in `RULES`. Its function makes clients of a
listing; a rule for data of one kind only has a reader of its own, too. Importing
this imports no NumPy.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from collections.abc import Mapping
from typing import TYPE_CHECKING
from typing import Any
from typing import NamedTuple

from tff_xc import errors

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
  """

  train: partition_lib.Partition
  test: np.ndarray | None = None


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


class Request(NamedTuple):
  """A split to make.

  Attributes:
    rule: a key of `RULES`.
    settings: the rule's, all of them.
    seed: of all draws.
    test_fraction: the share of every class for the test; 0: none.
    test_per_class: the examples of every class for the test; 0: none.
  """

  rule: str
  settings: Mapping[str, Any]
  seed: int = 0
  test_fraction: float = 0.0
  test_per_class: int = 0

  def check(self) -> Rule:
    """Returns the rule.

    Raises:
      errors.InputError: there is no such rule; it is to make two test parts.
    """
    rule = get(self.rule)
    asked = [n for n in ('test_fraction', 'test_per_class') if getattr(self, n)]
    if asked and rule.makes_test:
      raise errors.InputError(
        f'{self.rule} makes the test part itself; leave out --{asked[0]}'
      )
    if len(asked) > 1:
      raise errors.InputError(
        'give --test_fraction or --test_per_class, not both'
      )
    return rule


def get(name: str) -> Rule:
  """Returns a rule; raises `errors.InputError` if there is none of that name."""
  if name not in RULES:
    raise errors.InputError(
      f'unknown rule {name!r}: the rules are {", ".join(RULES)}'
    )
  return RULES[name]


def _dirichlet(listing, seed, *, alpha, clients, examples_per_client) -> Split:
  from datasets.splits import dirichlet

  return Split(
    dirichlet.partition(
      listing.labels,
      alpha=alpha,
      num_clients=clients,
      examples_per_client=examples_per_client,
      seed=seed,
    )
  )


def _classes_per_client(listing, seed, **settings) -> Split:
  from datasets.splits import by_class

  return Split(
    by_class.partition(
      listing.labels, len(listing.class_names), seed=seed, **settings
    )
  )


def _chunks(listing, seed, *, examples_per_client) -> Split:
  from datasets.splits import sorted_cuts

  return Split(
    sorted_cuts.chunks(listing.labels, examples_per_client=examples_per_client)
  )


def _shards(listing, seed, *, clients, shards_per_client) -> Split:
  from datasets.splits import sorted_cuts

  return Split(
    sorted_cuts.shards(
      listing.labels,
      num_clients=clients,
      shards_per_client=shards_per_client,
      seed=seed,
    )
  )


def _frequent_labels(listing, seed, *, clients, variant, frequency) -> Split:
  from datasets.splits import frequent_labels

  return Split(
    frequent_labels.partition(
      listing.labels,
      num_clients=clients,
      rule=variant,
      frequency=frequency,
      seed=seed,
    )
  )


def _users(listing, seed, *, min_examples) -> Split:
  from datasets.splits import by_user

  return Split(
    by_user.partition(
      listing.users, listing.user_names, min_examples=min_examples
    )
  )


def _leaf_users(listing, seed, *, min_examples, train_share) -> Split:
  import numpy as np

  from datasets.splits import by_user

  users, names = listing.users, listing.user_names
  by_user.check_some(names)
  sizes = np.bincount(users[users >= 0], minlength=len(names))
  train, test = by_user.leaf_parts(
    sizes, min_examples=min_examples, train_share=train_share, seed=seed
  )
  if not len(train):
    raise errors.InputError(
      f'leaf_users has {len(test)} of {len(names)} users with enough examples, and'
      f' {train_share:g} of them is less than one who trains; give data of more'
      ' users, lower --min_examples, or raise --train_share'
    )
  return Split(
    by_user.partition(users, names, kept=train),
    np.flatnonzero(np.isin(users, test)),
  )


def _clients(default: int) -> Flag:
  return Flag(default, 'number of clients')


_MIN_EXAMPLES = Flag(1, 'users with fewer examples are left out')

RULES: Mapping[str, Rule] = {
  'dirichlet': Rule(
    'classes of a client from Dir(alpha p), one client filled after another'
    ' (FedVC, FedIR)',
    _dirichlet,
    {
      'alpha': Flag(
        1.0,
        'concentration of all classes together; 0: one class a client',
        0.0,
        1e9,
      ),
      'clients': _clients(100),
      'examples_per_client': Flag(
        0, 'examples of each client; 0: all are dealt', 0
      ),
    },
  ),
  'classes_per_client': Rule(
    'random classes a client, whole or in shares (FedAwS: one class a client)',
    _classes_per_client,
    {
      'classes_per_client': Flag(1, 'classes of each client'),
      'clients_per_class': Flag(1, 'clients that share each class'),
    },
  ),
  'chunks': Rule(
    'examples sorted by class and cut into equal clients (FedSS: SOP)',
    _chunks,
    {'examples_per_client': Flag(100, 'examples of each client')},
  ),
  'shards': Rule(
    'examples sorted by class and cut into shards; some shards a client'
    ' (FedAvg: MNIST)',
    _shards,
    {
      'clients': _clients(100),
      'shards_per_client': Flag(2, 'shards of each client'),
    },
  ),
  'frequent_labels': Rule(
    'sets of labels: a frequent label a client, with overlaps (FedMLH)',
    _frequent_labels,
    {
      'clients': _clients(10),
      'variant': Flag(
        'code',
        'the rule of the published code, or of the paper',
        choices=('code', 'paper'),
      ),
      'frequency': Flag(
        0.01, "share of the examples of a frequent label ('paper')", 0.0, 1.0
      ),
    },
    labels='sets',
  ),
  'users': Rule(
    'the users of the data, by a column, LEAF, or the array client',
    _users,
    {'min_examples': _MIN_EXAMPLES},
    labels='',
    users=True,
  ),
  'leaf_users': Rule(
    'users, a tenth of whom are the test (LEAF, TurboSVM-FL)',
    _leaf_users,
    {
      'min_examples': Flag(0, 'users with fewer examples are left out', 0),
      'train_share': Flag(0.9, 'share of the users that train', 0.01, 0.99),
    },
    labels='',
    users=True,
    makes_test=True,
  ),
}
