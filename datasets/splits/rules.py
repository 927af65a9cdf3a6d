"""The split rules of `launch.make_splits`, by name, with their flags.

A rule is a record (`rule.Rule`) and a line in `RULES`. Its function makes clients
of a listing; a rule for data of one kind only has a reader of its own, too, and
lies beside that. Importing this imports no NumPy.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from typing import NamedTuple

from datasets.splits import published
from datasets.splits import rule as rule_lib
from tff_xc import errors
from tff_xc import wording


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

  def check(self) -> rule_lib.Rule:
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


def get(name: str) -> rule_lib.Rule:
  """Returns a rule; raises `errors.InputError` if there is none of that name."""
  if name not in RULES:
    raise errors.InputError(
      f'unknown rule {name!r}: the rules are {", ".join(RULES)}'
      + wording.meant(name, RULES)
    )
  return RULES[name]


def _dirichlet(
  listing, seed, *, alpha, clients, examples_per_client, size_deviation
) -> rule_lib.Split:
  from datasets.splits import dirichlet

  return rule_lib.Split(
    dirichlet.partition(
      listing.labels,
      alpha=alpha,
      num_clients=clients,
      examples_per_client=examples_per_client,
      size_deviation=size_deviation,
      seed=seed,
    )
  )


def _classes_per_client(listing, seed, **settings) -> rule_lib.Split:
  from datasets.splits import by_class

  return rule_lib.Split(
    by_class.partition(
      listing.labels, len(listing.class_names), seed=seed, **settings
    )
  )


def _chunks(listing, seed, *, examples_per_client) -> rule_lib.Split:
  from datasets.splits import sorted_cuts

  return rule_lib.Split(
    sorted_cuts.chunks(listing.labels, examples_per_client=examples_per_client)
  )


def _shards(listing, seed, *, clients, shards_per_client) -> rule_lib.Split:
  from datasets.splits import sorted_cuts

  return rule_lib.Split(
    sorted_cuts.shards(
      listing.labels,
      num_clients=clients,
      shards_per_client=shards_per_client,
      seed=seed,
    )
  )


def _frequent_labels(
  listing, seed, *, clients, variant, frequency
) -> rule_lib.Split:
  from datasets.splits import frequent_labels

  return rule_lib.Split(
    frequent_labels.partition(
      listing.labels,
      num_clients=clients,
      rule=variant,
      frequency=frequency,
      seed=seed,
    )
  )


def _users(listing, seed, *, min_examples) -> rule_lib.Split:
  from datasets.splits import by_user

  return rule_lib.Split(
    by_user.partition(
      listing.users, listing.user_names, min_examples=min_examples
    )
  )


def _leaf_users(listing, seed, *, min_examples, train_share) -> rule_lib.Split:
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
  return rule_lib.Split(
    by_user.partition(users, names, kept=train),
    np.flatnonzero(np.isin(users, test)),
  )


def _clients(default: int) -> rule_lib.Flag:
  return rule_lib.Flag(default, 'number of clients')


_MIN_EXAMPLES = rule_lib.Flag(1, 'users with fewer examples are left out')

RULES: Mapping[str, rule_lib.Rule] = {
  'dirichlet': rule_lib.Rule(
    'classes of a client from Dir(alpha p), one client filled after another'
    ' (FedVC, FedIR)',
    _dirichlet,
    {
      'alpha': rule_lib.Flag(
        1.0,
        'concentration of all classes together; 0: one class a client',
        0.0,
        1e9,
      ),
      'clients': _clients(100),
      'examples_per_client': rule_lib.Flag(
        0, 'examples of each client, or their mean; 0: all are dealt', 0
      ),
      'size_deviation': rule_lib.Flag(
        0.0,
        "standard deviation of the logarithm of clients' sizes, which are then"
        ' log-normal; 0: equal',
        0.0,
        10.0,
      ),
    },
  ),
  'classes_per_client': rule_lib.Rule(
    'random classes a client, whole or in shares (FedAwS: one class a client)',
    _classes_per_client,
    {
      'classes_per_client': rule_lib.Flag(1, 'classes of each client'),
      'clients_per_class': rule_lib.Flag(1, 'clients that share each class'),
    },
  ),
  'chunks': rule_lib.Rule(
    'examples sorted by class and cut into equal clients (FedSS: SOP)',
    _chunks,
    {'examples_per_client': rule_lib.Flag(100, 'examples of each client')},
  ),
  'shards': rule_lib.Rule(
    'examples sorted by class and cut into shards; some shards a client'
    ' (FedAvg: MNIST)',
    _shards,
    {
      'clients': _clients(100),
      'shards_per_client': rule_lib.Flag(2, 'shards of each client'),
    },
  ),
  'frequent_labels': rule_lib.Rule(
    'sets of labels: a frequent label a client, with overlaps (FedMLH)',
    _frequent_labels,
    {
      'clients': _clients(10),
      'variant': rule_lib.Flag(
        'code',
        'the rule of the published code, or of the paper',
        choices=('code', 'paper'),
      ),
      'frequency': rule_lib.Flag(
        0.01, "share of the examples of a frequent label ('paper')", 0.0, 1.0
      ),
    },
    labels='sets',
  ),
  'users': rule_lib.Rule(
    'the users of the data, by a column, LEAF, or the array client',
    _users,
    {'min_examples': _MIN_EXAMPLES},
    labels='',
    users=True,
  ),
  'leaf_users': rule_lib.Rule(
    'users, a tenth of whom are the test (LEAF, TurboSVM-FL)',
    _leaf_users,
    {
      'min_examples': rule_lib.Flag(
        0, 'users with fewer examples are left out', 0
      ),
      'train_share': rule_lib.Flag(
        0.9, 'share of the users that train', 0.01, 0.99
      ),
    },
    labels='',
    users=True,
    makes_test=True,
  ),
  **published.RULES,
}
