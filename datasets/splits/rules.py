"""The split rules of `launch.make_splits` and of `--split`, by name.

A rule is a function (examples, seed, **settings) -> Partition, and a record in
`RULES` with its settings. A rule for data of one kind has a reader of its own, too.
Importing this imports no NumPy.
"""

from __future__ import annotations

import dataclasses
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
  """What is known of a published split."""

  input: Mapping[str, Any]  # By names of `Examples.facts`.
  counts: Mapping[str, int]  # By names of a split's summary.
  # Those of `counts` that an unpublished draw decides.
  drawn: tuple[str, ...] = ()
  why: str = ''  # Why a split of this input differs all the same.


@dataclasses.dataclass(frozen=True)
class Rule:
  """A way to make clients."""

  summary: str  # One line for `--help`.
  # (examples, seed, **settings) -> Partition or `partitions.Split`.
  split: Callable
  flags: tuple[hp.Hyperparameter, ...] = ()  # Its settings.
  # 'one': each example has one label, drawn of a set; 'sets': a set; '': either.
  labels: str = 'one'
  users: bool = False  # Whether it needs the examples' users.
  makes_test: bool = False
  # path -> examples; None: `inputs.read`, which takes all kinds.
  read: Callable[[Any], examples_lib.Examples] | None = None
  # Whether lists in the input name its images, so that others do not count.
  has_lists: bool = False
  # What the defaults make of published data.
  published: Published | None = None

  def settings(self, **given) -> dict[str, Any]:
    """Returns all settings: those given, and the defaults of the others."""
    return {flag.name: flag.default for flag in self.flags} | given


class Request(NamedTuple):
  """A split to make."""

  rule: str  # A key of `RULES`.
  settings: Mapping[str, Any]  # The rule's, all of them.
  seed: int = 0
  test_fraction: float = 0.0  # Of every class; 0: none.
  test_per_class: int = 0  # Of every class; 0: none.

  def check(self) -> Rule:
    """Returns the rule; raises InputError if there is none, or two test parts."""
    rule = get(self.rule)
    asked = [n for n in ('test_fraction', 'test_per_class') if getattr(self, n)]
    if asked and rule.makes_test:
      raise errors.InputError(f'{self.rule} makes the test part itself; leave out --{asked[0]}')
    if len(asked) > 1:
      raise errors.InputError('give --test_fraction or --test_per_class, not both')
    return rule


def get(name: str) -> Rule:
  """Returns a rule; raises `errors.InputError` if there is none of that name."""
  if name not in RULES:
    raise errors.InputError(
      f'unknown rule {name!r}: the rules are {", ".join(RULES)}' + wording.meant(name, RULES)
    )
  return RULES[name]


def deal(name: str, examples: examples_lib.Examples, seed=0, **given) -> partitions.Split:
  """Deals examples, those that train, to clients by the rule of a name.

  `seed` is whatever `np.random.default_rng` takes; settings that are not given have
  their defaults. Raises `errors.InputError` if one is bad, or the examples do not do.
  """
  from datasets.splits import partitions

  rule = get(name)
  settings = rule.settings(**given)
  for flag in rule.flags:
    settings[flag.name] = flag.checked(settings[flag.name])
  made = rule.split(examples, seed, **settings)
  return made if isinstance(made, partitions.Split) else partitions.Split(made)


def parse(split: str) -> tuple[str, dict[str, Any]] | None:
  """Returns the rule that `--split` names, with its settings; None: it names a file.

  It may be empty (users), `class`, `iid:K`, or `RULE:SETTING=VALUE,...` with a rule
  that deals examples of one label, such as `dirichlet:concentration=0.1,clients=50`.
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
  """Returns a sentence about flags, as `--split` writes them: clients, not --clients."""
  return re.sub(r'(^|\s)--(?=\w)', r'\1', str(error))


def _deals(rule: Rule) -> bool:
  """Whether a rule deals examples of one label, of whatever data."""
  return not rule.read and rule.labels == 'one'


def settings_of(name: str, given: Mapping[str, str]) -> dict[str, Any]:
  """Returns the values of some settings of a rule, which are texts; refuses bad ones."""
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
  """Returns the function `datasets.NAME`, imported when it is called."""
  return lambda *args, **settings: pkgutil.resolve_name(f'datasets.{name}')(
    *args, **more, **settings
  )


def _flags(**settings: tuple) -> tuple[hp.Hyperparameter, ...]:
  """Returns settings of (default, help) and perhaps (least, most), or choices."""
  made = []
  for name, (default, text, *more) in settings.items():
    bounds = {'least': 1, **dict(zip(('least', 'most'), more, strict=False))}
    if isinstance(default, str):
      bounds = {'choices': tuple(more)}
    made.append(hp.Hyperparameter(name, default, text, **bounds))
  return tuple(made)


_CLIENTS = 'number of clients'
_FEWER = 'users with fewer examples are left out'


def _inaturalist(summary: str, clients: int, counts=(), flags=(), **options):
  text = 'images drawn of each class; classes with fewer are left out'
  return Rule(
    summary,
    flags=_flags(images_per_class=(100, text), **dict(flags)),
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
    'cells with fewer images than this share of the most are left out; the paper has'
    ' such a bound and does not name it'
  )
  return _inaturalist(
    f'the same images by S2 cell, divided until none has over {most:,} (FedVC)',
    clients,
    flags={'least_share': (0.01, text, 0.0, 1.0)},
    split=_at('inaturalist:by_cell', most=most),
    read=_at('inaturalist:read', positions=True),
  )


RULES: Mapping[str, Rule] = {
  'dirichlet': Rule(
    'classes of a client from Dir(alpha p), one client filled after another (FedVC, FedIR)',
    _at('splits.dirichlet:partition'),
    _flags(
      concentration=(
        1.0,
        'total concentration alpha: class c has alpha p_c, which is alpha / n of n'
        ' equal classes (where others give each class beta, alpha is n beta); 0:'
        ' one class a client',
        0.0,
        1e9,
      ),
      clients=(100, _CLIENTS),
      examples_per_client=(0, 'examples of each client, or their mean; 0: all are dealt', 0),
      size_deviation=(
        0.0,
        "standard deviation of the logarithm of clients' sizes, which are then"
        ' log-normal; 0: equal',
        0.0,
        10.0,
      ),
    ),
  ),
  'iid': Rule(
    'random examples, as many each', _at('splits.partitions:iid'), _flags(clients=(100, _CLIENTS))
  ),
  'classes_per_client': Rule(
    'random classes a client, whole or in shares (FedAwS: one class a client)',
    _at('splits.partitions:by_class'),
    _flags(
      classes_per_client=(1, 'classes of each client'),
      clients_per_class=(1, 'clients that share each class'),
    ),
  ),
  'chunks': Rule(
    'examples sorted by class and cut into equal clients (FedSS: SOP)',
    _at('splits.partitions:chunks'),
    _flags(examples_per_client=(100, 'examples of each client')),
  ),
  'shards': Rule(
    'examples sorted by class and cut into shards; some shards a client (FedAvg: MNIST)',
    _at('splits.partitions:shards'),
    _flags(clients=(100, _CLIENTS), shards_per_client=(2, 'shards of each client')),
  ),
  'frequent_labels': Rule(
    'sets of labels: a frequent label a client, with overlaps (FedMLH)',
    _at('splits.partitions:frequent_labels'),
    _flags(
      clients=(10, _CLIENTS),
      variant=('code', 'the rule of the published code, or of the paper', 'code', 'paper'),
      frequency=(0.01, "share of the examples of a frequent label ('paper')", 0.0, 1.0),
    ),
    labels='sets',
  ),
  'users': Rule(
    'the users of the data, by a column, LEAF, or the array client',
    _at('splits.partitions:users'),
    _flags(min_examples=(1, _FEWER)),
    labels='',
    users=True,
  ),
  'leaf_users': Rule(
    'users, a tenth of whom are the test (LEAF, TurboSVM-FL)',
    _at('splits.partitions:leaf_users'),
    _flags(
      min_examples=(0, _FEWER, 0), train_share=(0.9, 'share of the users that train', 0.01, 0.99)
    ),
    labels='',
    users=True,
    makes_test=True,
  ),
  # Hsu, Qi and Brown: Federated Visual Classification with Real-World Data
  # Distribution, ECCV 2020. The input's counts are those of its owners.
  'landmarks-user-160k': Rule(
    'clean images of Google Landmarks v2 by author (FedVC, FedSS); --input: the'
    ' folder of train.csv, train_attribution.csv and train_clean.csv',
    _at('landmarks:split'),
    _flags(
      min_landmark_images=(30, 'landmarks with fewer images are left out'),
      min_landmark_authors=(10, 'landmarks of fewer authors are left out'),
      min_author_images=(30, 'authors with fewer images are no clients'),
      min_author_landmarks=(5, 'authors with images of fewer landmarks are no clients'),
      max_test=(10, 'test images of a landmark, of authors that are no clients, at most'),
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
  # The same paper. TFF's documentation has one client more each, since it counts
  # the images of nobody ('NA') as a client.
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
  # Song et al.: Deep Metric Learning via Lifted Structured Feature Embedding, CVPR
  # 2016, made the lists. Waghmare et al. (FedSS) made the clients: 596 with 100
  # images of about 20 classes, which are the chunks of a list sorted by class.
  'sop': Rule(
    'Stanford Online Products sorted by class and cut into clients; the test list'
    ' becomes retrieval.csv (FedSS); --input: the folder or zip of Ebay_train.txt'
    ' and Ebay_test.txt',
    _at('splits.partitions:chunks'),
    _flags(examples_per_client=(100, 'images of each client')),
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
  # Waghmare et al. (FedSS), section 4.1; the input is the release of fall 2011.
  'imagenet21k': Rule(
    'ImageNet-21k, a fifth of each class for the test, the rest in shards, some of'
    ' distinct classes a client (FedSS); --input: a folder for each synset, or a'
    ' tar for each (in a folder or a tar), or a text file, SYNSET/NAME.JPEG a line',
    _at('imagenet21k:split'),
    _flags(
      test_share=(0.2, 'share of each class for the test', 0.001, 0.5),
      examples_per_shard=(20, 'images of a class in a shard'),
      shards_per_client=(20, 'shards of each client'),
    ),
    makes_test=True,
    read=_at('imagenet21k:read'),
    published=Published(
      input={'images': 14_197_122, 'classes': 21_841},
      counts={'clients': 25_691},
      why='25,691 clients of 400 images are 10.3 million, and 80 % of the images are'
      ' 11.4: the published counts do not agree with each other',
    ),
  ),
}
