"""The split rules of `launch.make_splits` and of `--split`, by name.

A split rule is a function (examples, seed, **settings) -> Partition. `RULES` describes each
rule and its settings. A rule for a single data set also has a function that reads the data
set. This module imports no NumPy, so that commands start fast.
"""

from __future__ import annotations

import dataclasses
import functools
import pkgutil
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from datasets.splits import split_path
from tff_xc import errors, wording
from tff_xc.options import hyperparameters as hp

if TYPE_CHECKING:
  from datasets import examples as examples_lib
  from datasets.splits import partitions


class Published(NamedTuple):
  """The known numbers of a published split."""

  input: Mapping[str, Any]  # Numbers about the input. The keys are those of `Examples.facts`.
  counts: Mapping[str, int]  # Numbers about the split. The keys are those of its summary.
  # The keys in `counts` whose numbers depend on an unpublished random sample.
  drawn: tuple[str, ...] = ()
  why: str = ''  # Why our split of the same input differs from these numbers.


@dataclasses.dataclass(frozen=True)
class Rule:
  """A rule that assigns examples to clients."""

  summary: str  # One line for `--help`.
  # (examples, seed, **settings) -> Partition or `partitions.Split`.
  split: Callable
  flags: tuple[hp.Hyperparameter, ...] = ()  # The settings of the rule.
  # 'one': the rule needs one label per example, so a label is sampled from each set of
  # labels. 'sets': the rule needs sets of labels. '': the rule takes any examples.
  labels: str = 'one'
  users: bool = False  # Whether the rule needs the examples' users.
  makes_test: bool = False
  # The function path -> examples that reads the input. None: `inputs.read`, which reads all
  # kinds of input.
  read: Callable[[Any], examples_lib.Examples] | None = None
  # Whether files in the input list its images. Then other images in the folder are ignored.
  has_lists: bool = False
  # The published split that the default settings make.
  published: Published | None = None

  def settings(self, **given) -> dict[str, Any]:
    """Returns the given settings, and the defaults of all other settings."""
    return {flag.name: flag.default for flag in self.flags} | given


class Request(NamedTuple):
  """The user's request for a split."""

  rule: str  # A key of `RULES`.
  settings: Mapping[str, Any]  # All settings of the rule.
  seed: int = 0
  test_fraction: float = 0.0  # The share of each class to hold out for testing; 0: none.
  test_per_class: int = 0  # The number of test examples of each class; 0: none.

  def check(self) -> Rule:
    """Returns the rule; raises InputError if it is unknown or there would be two test sets."""
    rule = get(self.rule)
    asked = [n for n in ('test_fraction', 'test_per_class') if getattr(self, n)]
    if asked and rule.makes_test:
      raise errors.InputError(f'{self.rule} makes the test part itself; leave out --{asked[0]}')
    if len(asked) > 1:
      raise errors.InputError('give --test_fraction or --test_per_class, not both')
    return rule


def get(name: str) -> Rule:
  """Returns the rule with this name; raises `errors.InputError` if there is none."""
  if name not in RULES:
    raise errors.InputError(
      f'unknown rule {name!r}: the rules are {", ".join(RULES)}' + wording.meant(name, RULES)
    )
  return RULES[name]


def deal(name: str, examples: examples_lib.Examples, seed=0, **given) -> partitions.Split:
  """Assigns training examples to clients by the rule `name`.

  `seed` is any seed for `np.random.default_rng`. `given` are settings of the rule, and all
  other settings have their defaults. Raises `errors.InputError` if a setting is bad, or the
  rule cannot split the examples.
  """
  from datasets.splits import partitions

  rule = get(name)
  settings = rule.settings(**given)
  for flag in rule.flags:
    settings[flag.name] = flag.checked(settings[flag.name])
  made = rule.split(examples, seed, **settings)
  return made if isinstance(made, partitions.Split) else partitions.Split(made)


def parse(split: str) -> tuple[str, dict[str, Any]] | None:
  """Returns the rule that `--split` names and its settings; None if `--split` names a file.

  `split` may be empty (the rule `users`), `class`, `iid:K` or `RULE:SETTING=VALUE,...`, such
  as `dirichlet:concentration=0.1,clients=50`. RULE must be a rule for examples with one label
  that works with any data set.
  """
  if split in ('', 'class'):
    return ('classes_per_client' if split else 'users'), {}
  name, _, rest = split.partition(':')
  if name == 'iid' and '=' not in rest and rest != '':
    rest = f'clients={rest}'
  rule = RULES.get(name)
  if '=' not in rest:
    return None
  if not rule or not _deals(rule):
    if split_path.parse(split).exists():
      return None
    raise errors.InputError(
      f'--split={split} is no file, and no rule that --split takes; these are '
      + ', '.join(name for name, rule in RULES.items() if _deals(rule))
    )
  items = [item.partition('=')[::2] for item in rest.split(',')]
  given = dict(items)
  if len(given) < len(items):
    raise errors.InputError(f'--split={split} gives a setting twice; leave one out')
  try:
    return name, settings_of(name, given)
  except errors.InputError as e:
    example = ', such as --split=iid:100' if name == 'iid' else ''
    told = f'--split={split}: {without_dashes(e)}{example}'
    raise errors.InputError(told) from e


def without_dashes(error: Exception) -> str:
  """Returns an error's text without the dashes of flags, so `--clients` becomes `clients`."""
  return re.sub(r'(^|\s)--(?=\w)', r'\1', str(error))


def _deals(rule: Rule) -> bool:
  """Whether a rule works with any data set of examples with one label."""
  return not rule.read and rule.labels == 'one'


def settings_of(name: str, given: Mapping[str, str]) -> dict[str, Any]:
  """Parses the settings of a rule; raises InputError if a setting is bad."""
  flags, found = {flag.name: flag for flag in get(name).flags}, {}
  for flag, text in given.items():
    if flag not in flags:
      raise errors.InputError(
        f'--{flag} is no setting of {name}, which takes '
        + (', '.join(f'--{n}' for n in flags) or 'none')
      )
    found[flag] = flags[flag].read(text)
  return found


def _at(name: str, **more) -> Callable:
  """Returns a function that imports the function `datasets.NAME` and calls it."""
  return lambda *args, **settings: pkgutil.resolve_name(f'datasets.{name}')(
    *args, **more, **settings
  )


# Makes a setting from its name, its default and its help. Its smallest value is 1 unless given.
_flag = functools.partial(hp.Hyperparameter, least=1)
_CLIENTS = 'number of clients'
_FEWER = 'leave out users with fewer examples than this'


def _inaturalist(summary: str, clients: int, counts=(), flags=(), **options):
  text = 'number of images to draw from each class. Classes with fewer images are left out'
  return Rule(
    summary,
    flags=(_flag('images_per_class', 100, text), *flags),
    has_lists=True,
    published=Published(
      input={
        'images in train2017.json': 579_184,
        'images in val2017.json': 95_986,
        'categories in train2017.json': 5_089,
        'md5 of inat2017_locations.zip': 'afc1956f9a100b165b89f3923d040912',
      },
      counts={'classes': 1_203, 'test_examples': 35_641, 'clients': clients, **dict(counts)},
      drawn=('clients',),
    ),
    **options,
  )


def _inaturalist_geo(most: int, clients: int) -> Rule:
  text = (
    'leave out cells with fewer images than this share of the largest number of images that a cell'
    ' may have. The paper has such a bound, but does not state its value'
  )
  return _inaturalist(
    f'images of iNaturalist 2017 by S2 cell; cells have at most {most:,} images each (FedVC);'
    ' --input as for inaturalist-user-120k',
    clients,
    flags=(_flag('least_share', 0.01, text, least=0.0, most=1.0),),
    split=_at('inaturalist:by_cell', most=most),
    read=_at('inaturalist:read', positions=True),
  )


RULES: Mapping[str, Rule] = {
  'dirichlet': Rule(
    'draw the class distribution of each client from Dir(alpha p) (FedVC, FedIR)',
    _at('splits.dirichlet:partition'),
    (
      _flag(
        'concentration',
        1.0,
        'total concentration alpha. Class c has alpha p_c, where p_c is the share of the class in'
        ' the data. If another program takes beta for each of n equal classes, set alpha to n'
        ' beta. 0: one class per client',
        least=0.0,
        most=1e9,
      ),
      _flag('clients', 100, _CLIENTS),
      _flag(
        'examples_per_client', 0, 'mean number of examples per client; 0: use all examples', least=0
      ),
      _flag(
        'size_deviation',
        0.0,
        'standard deviation of the logarithm of client sizes. The sizes are log-normal. 0: equal'
        ' sizes',
        least=0.0,
        most=10.0,
      ),
    ),
  ),
  'iid': Rule(
    'give each client equally many random examples',
    _at('splits.partitions:iid'),
    (_flag('clients', 100, _CLIENTS),),
  ),
  'classes_per_client': Rule(
    'give each client random classes, alone or shared with other clients (FedAwS: one class per'
    ' client)',
    _at('splits.partitions:by_class'),
    (
      _flag('classes_per_client', 1, 'number of classes per client'),
      _flag('clients_per_class', 1, 'number of clients that share each class'),
    ),
  ),
  'chunks': Rule(
    'sort the examples by class, and cut them into clients of equal size (FedSS: Stanford Online'
    ' Products)',
    _at('splits.partitions:chunks'),
    (_flag('examples_per_client', 100, 'number of examples per client'),),
  ),
  'shards': Rule(
    'sort the examples by class, cut them into shards, and give each client random shards'
    ' (FedAvg: MNIST)',
    _at('splits.partitions:shards'),
    (_flag('clients', 100, _CLIENTS), _flag('shards_per_client', 2, 'number of shards per client')),
  ),
  'frequent_labels': Rule(
    'for examples with sets of labels: give each client one frequent label; clients may share'
    ' examples (FedMLH)',
    _at('splits.partitions:frequent_labels'),
    (
      _flag('clients', 10, _CLIENTS),
      hp.Hyperparameter(
        'variant',
        'code',
        "how to assign the frequent labels. 'code': as FedMLH's published code does; 'paper': as"
        ' the FedMLH paper says',
        choices=('code', 'paper'),
      ),
      _flag(
        'frequency',
        0.01,
        'with --variant=paper: smallest share of all examples that a frequent label has',
        least=0.0,
        most=1.0,
      ),
    ),
    labels='sets',
  ),
  'users': Rule(
    "make one client per user. Users come from a column of a table, LEAF's JSON, or the array"
    ' client of a .npz file',
    _at('splits.partitions:users'),
    (_flag('min_examples', 1, _FEWER),),
    labels='',
    users=True,
  ),
  'leaf_users': Rule(
    'make one client per user, and use a tenth of the users as the test set (LEAF, TurboSVM-FL)',
    _at('splits.partitions:leaf_users'),
    (
      _flag('min_examples', 0, _FEWER, least=0),
      _flag('train_share', 0.9, 'share of the users to use for training', least=0.01, most=0.99),
    ),
    labels='',
    users=True,
    makes_test=True,
  ),
  # Hsu, Qi and Brown: Federated Visual Classification with Real-World Data
  # Distribution, ECCV 2020. The owners of the input publish its numbers of images and landmarks.
  'landmarks-user-160k': Rule(
    'clean images of Google Landmarks v2 by author (FedVC, FedSS); --input: the'
    ' folder of train.csv, train_attribution.csv and train_clean.csv',
    _at('landmarks:split'),
    (
      _flag('min_landmark_images', 30, 'leave out landmarks with fewer images than this'),
      _flag(
        'min_landmark_authors', 10, 'leave out landmarks with images by fewer authors than this'
      ),
      _flag('min_author_images', 30, 'do not make clients of authors with fewer images than this'),
      _flag(
        'min_author_landmarks',
        5,
        'do not make clients of authors with images of fewer landmarks than this',
      ),
      _flag(
        'max_test',
        10,
        'largest number of test images per landmark. Test images come from authors who are not'
        ' clients',
      ),
    ),
    users=True,
    makes_test=True,
    read=_at('landmarks:read'),
    has_lists=True,
    published=Published(
      input={
        'images in train.csv': 4_132_914,
        'images in train_clean.csv': 1_580_470,
        'landmarks in train_clean.csv': 81_313,
      },
      counts={'examples': 164_172, 'classes': 2_028, 'clients': 1_262, 'test_examples': 19_526},
    ),
  ),
  # Hsu, Qi and Brown (ECCV 2020) publish this split, too. TFF's documentation has one client
  # more in each split, because it counts the images without a user ('NA') as a client.
  'inaturalist-user-120k': _inaturalist(
    'images of iNaturalist 2017 by user (FedVC); --input: the folder of'
    ' train_val2017.zip and inat2017_locations.zip, or of the files in them',
    9_275,
    counts={'examples': 120_300},
    split=_at('inaturalist:by_user'),
    users=True,
    read=_at('inaturalist:read'),
  ),
  **{
    f'inaturalist-geo-{size}': _inaturalist_geo(most, clients)
    for size, most, clients in (
      ('30k', 30_000, 11),
      ('10k', 10_000, 38),
      ('3k', 3_000, 135),
      ('1k', 1_000, 368),
      ('300', 300, 1_208),
      ('100', 100, 3_606),
    )
  },
  # Song et al. (Deep Metric Learning via Lifted Structured Feature Embedding, CVPR 2016)
  # publish the lists. Waghmare et al. (FedSS) sort the training list by class and cut it into
  # 596 clients with 100 images of about 20 classes each.
  'sop': Rule(
    'Stanford Online Products sorted by class and cut into clients; the test list'
    ' becomes retrieval.csv (FedSS); --input: the folder or zip of Ebay_train.txt'
    ' and Ebay_test.txt',
    _at('splits.partitions:chunks'),
    (_flag('examples_per_client', 100, 'number of images per client'),),
    read=_at('sop:read'),
    has_lists=True,
    published=Published(
      input={
        'images in Ebay_train.txt': 59_551,
        'classes in Ebay_train.txt': 11_318,
        'images in Ebay_test.txt': 60_502,
        'classes in Ebay_test.txt': 11_316,
      },
      counts={
        'examples': 59_551,
        'classes': 11_318,
        'clients': 596,
        'retrieval_examples': 60_502,
        'retrieval_classes': 11_316,
      },
    ),
  ),
  # Waghmare et al. (FedSS), section 4.1. The input is ImageNet's release of fall 2011.
  'imagenet21k': Rule(
    'ImageNet-21k with a fifth of each class for the test, and shards of different'
    ' classes for each client (FedSS); --input: a folder for each synset, or a'
    ' tar for each (in a folder or a tar), or a text file of lines SYNSET/NAME.JPEG',
    _at('imagenet21k:split'),
    (
      _flag('test_share', 0.2, 'share of each class to use as the test set', least=0.001, most=0.5),
      _flag('examples_per_shard', 20, 'number of images per shard, all of one class'),
      _flag('shards_per_client', 20, 'number of shards per client'),
    ),
    makes_test=True,
    read=_at('imagenet21k:read'),
    published=Published(
      input={'images': 14_197_122, 'classes': 21_841},
      counts={'clients': 25_691},
      why='25,691 clients of 400 images are 10.3 million, but 80 % of the images are'
      ' 11.4 million: the published counts do not agree with each other',
    ),
  ),
}
