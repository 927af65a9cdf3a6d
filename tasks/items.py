"""Tasks that recommend items: they predict the next item of a user's history.

Importing this module imports nothing large, so that flags are checked at once.
"""

import dataclasses

from tasks import encoders, own_data, task, xc
from tff_xc import errors
from tff_xc.options import hyperparameters as hp

_HISTORY = (
  hp.Hyperparameter(
    'history',
    20,
    'use at most this number of previous items of the user as the features of an example',
    least=1,
    most=100_000,
  ),
  hp.Hyperparameter(
    'test_split',
    'last',
    "choice of the test set. 'last': the last item of each user with at least two items; 'time':"
    ' the most recent items, about --test_share of all items',
    choices=('last', 'time'),
  ),
  hp.Hyperparameter(
    'test_share',
    0.1,
    'share of all items to put into the test set',
    above=0,
    most=0.5,
    of='test_split',
    only_with=('time',),
  ),
  hp.Hyperparameter(
    'leave_out_seen',
    True,
    "ignore an item that a user has taken before, and leave the user's previous items out of"
    ' rankings. false: users may take an item again',
  ),
  hp.Hyperparameter(
    'hold_out_validation',
    True,
    'hold out validation examples, and choose the best round by their scores. With'
    ' --test_split=last, the validation examples are the second-last items of users with at least'
    ' four items. With --test_split=time, they are the most recent items before the test items:'
    ' --test_share is their share of all items before the test items',
  ),
  hp.Hyperparameter(
    'most_tested',
    10_000,
    'largest number of test examples, and of validation examples, to rank. If there are more'
    ' examples, the run ranks a random sample. 0: rank all',
    least=0,
  ),
)
_COLUMNS = (
  own_data.USER_COLUMN,
  hp.Hyperparameter(
    'item_column', '', 'column that names the item; default: item_id, item, itemId or movieId'
  ),
  hp.Hyperparameter(
    'time_column',
    '',
    'column with the time of a row, as numbers or dates; default: time, timestamp or date. If'
    ' there is no such column, the rows must be in order of time',
  ),
)
TIE = hp.Hyperparameter(
  'tie_items',
  True,
  'use the same row of --embedding_dim numbers for an item as a feature and as a class. Clients'
  ' then request, receive and send the row once. false: features and classes have separate tables.'
  ' Default: true, but false if class rows cannot be features',
)
NETWORK = (
  encoders.OPTIONS[0].with_default(encoders.SEQUENCE),
  hp.Hyperparameter(
    'attention_blocks',
    1,
    'with --encoder=sequence: number of blocks, each with self-attention and two dense layers',
    least=1,
    most=2,
  ),
  hp.Hyperparameter(
    'dropout',
    0.2,
    'with --encoder=sequence: dropout rate of the input and of every sub-layer',
    least=0,
    below=1,
  ),
)
_SHAPE = (
  hp.Hyperparameter(
    'items_per_user',
    40.0,
    "median number of items in a generated user's history",
    least=3,
    most=10_000,
  ),
  hp.Hyperparameter(
    'series_share',
    0.35,
    'share of the items in generated histories that are the successor of the previous item, like'
    ' the parts of a series',
    least=0,
    most=1,
  ),
)
# Defaults with --tie_items, by --encoder. These settings had the best validation scores among about
# twenty short runs of FedSS on items-demo.
_TIED = {
  encoders.SEQUENCE: {'local_epochs': 4, 'client_learning_rate': 0.3, 'server_learning_rate': 0.02},
  encoders.BAG: {'local_epochs': 3, 'client_learning_rate': 0.5, 'server_learning_rate': 0.02},
}
# The schedule of the server learning rate with --encoder=sequence. Without the schedule, the
# validation nDCG@10 on items-demo is 30.2 % instead of 31.7 % after 160 rounds.
_DECAY = {'server_schedule': 'cosine', 'server_schedule_rounds': 200, 'server_schedule_factor': 0.1}
# Settings of centralized training with the best validation scores on items-demo. SGD needs four
# times as many rounds on these data.
_CENTRALIZED = {'steps_per_round': 48, 'client_optimizer': 'adam', 'client_learning_rate': 0.003}
# Algorithms that do not work with --tie_items. Some of them make class rows from embeddings or
# hashes. With the others, class rows stay on clients, or clients keep encoders without class rows.
_APART = (
  'fedaws',
  'fedaws_posonly',
  'fedaws_softmax',
  'fedaws_baseline1',
  'fedaws_baseline2',
  'turbosvm',
  'fedproto',
  'fedrep',
  'fedbabu',
  'fedmlh',
  'moon',
)
# Options of the data set.
OPTIONS = (*_HISTORY, *_COLUMNS, own_data.CLASSES)


def _options(options):
  from datasets import items

  return items.Options(
    options['history'],
    options['test_split'],
    options['test_share'],
    options['leave_out_seen'],
    options.get('classes', ''),
    options['hold_out_validation'],
    options['encoder'] == encoders.SEQUENCE,
    options['most_tested'],
  )


def _read(data_dir, options):
  from datasets import items

  columns = items.Columns(*(options[column.name] for column in _COLUMNS))
  return items.load(data_dir, _options(options), columns)


def _draw(data_dir, options):
  del data_dir
  from datasets import items
  from datasets.procedural import purchases

  drawn = purchases.draw(
    purchases.Options(
      options['num_clients'],
      options['num_classes'],
      options['items_per_user'],
      seed=options['data_seed'],
      follows=options['series_share'],
    )
  )
  chosen = _options(options)
  dataset = items.federated('items-demo', drawn, chosen)
  return items.told('items-demo', drawn, dataset, chosen)


def _fit_tie(draft: task.Draft) -> None:
  """Chooses --tie_items and --encoder, and refuses options that exclude each other."""
  values, options = draft.values, draft.options
  apart = {
    f'to {draft.algorithm.name}, whose class rows cannot be features': (
      draft.algorithm.name in _APART
    ),
    'with --contrastive_weight, because clients then keep encoders without class rows': (
      bool(values.get('contrastive_weight'))
    ),
    'with --trainable, which trains only class rows or features': (values['trainable'] != 'all'),
    "with --negatives_schedule=randomized, which leaves out some of a client's classes": (
      values.get('negatives_schedule') == 'randomized'
    ),
    'with --attack=flip_labels, because labels would then also be features': (
      values.get('attack') == 'flip_labels'
    ),
    'with lasting negatives and drawn examples, whose features would move the negatives': (
      values.get('negatives_schedule') in ('sticky', 'partial')
      and bool(options['examples_per_round'] or values.get('virtual_client_size'))
    ),
  }
  for why, is_so in apart.items():
    if is_so and options['tie_items']:
      if draft.given.get('tie_items'):
        draft.refuse('tie_items', why, 'give --tie_items=false')
      options['tie_items'] = False
  of_bags = draft.given.keys() & {'hidden_dim', 'feature_dim', 'feature_learning_rate'}
  if 'encoder' not in draft.given and (not options['tie_items'] or of_bags):
    options['encoder'] = encoders.BAG
  if options['encoder'] not in encoders.OF_ITEMS:
    raise errors.InputError(
      f'--encoder={options["encoder"]}: choose one of {", ".join(encoders.OF_ITEMS)}'
    )
  if options['encoder'] == encoders.SEQUENCE:
    if not options['tie_items']:
      raise errors.InputError(
        '--encoder=sequence reads the class rows, but this run has two tables of items'
        f' (because of --tie_items=false, {draft.algorithm.name} or another option);'
        ' give --encoder=bag'
      )
    draft.refuse('hidden_dim', 'with --encoder=sequence')
  else:
    for name in ('attention_blocks', 'dropout'):
      draft.refuse(name, 'with --encoder=bag, only with --encoder=sequence')
  if options['tie_items']:
    _fit_rates(draft)
    why = 'with --tie_items, because class rows are then the feature rows'
    for name in ('feature_dim', 'feature_learning_rate', 'select_features'):
      draft.refuse(name, why, 'leave it out, or give --tie_items=false')


def _fit_rates(draft: task.Draft) -> None:
  """Sets default learning rates and epochs with --tie_items, and a schedule for Adam."""
  values, given = draft.values, draft.given
  for name, default in _TIED[draft.options['encoder']].items():
    applies = draft.algorithm.has_clients and name in values
    if name == 'local_epochs':
      applies &= not values.get('local_steps')
    if name == 'client_learning_rate':
      applies &= values['client_optimizer'] == 'sgd'
    if name == 'server_learning_rate':
      applies &= values.get('server_optimizer') == 'adam'
    if applies and name not in given:
      values[name] = default
  is_adam = draft.algorithm.has_clients and (values.get('server_optimizer') == 'adam')
  is_sequence = draft.options['encoder'] == encoders.SEQUENCE
  if is_adam and is_sequence and 'server_schedule' not in given:
    values |= _DECAY


def _network(options, description):
  """Returns the bag or the sequence network. With --tie_items, its item rows are class rows."""
  from tff_xc.encoders import bag, encoder as encoder_lib, sequence

  if not options['tie_items']:
    return xc.network(options, description)
  tied = {**options, 'feature_dim': options['embedding_dim']}
  model = xc.network(tied, description)
  encoder, name = model.encoder, bag.FEATURE
  if options['encoder'] == encoders.SEQUENCE:
    name = sequence.ITEM
    encoder = sequence.build_sequence_encoder(
      num_items=description.num_classes,
      length=options['history'],
      dim=options['embedding_dim'],
      blocks=options['attention_blocks'],
      dropout=options['dropout'],
    )
  return dataclasses.replace(model, encoder=encoder_lib.tied(encoder, name))


def _fit(draft: task.Draft) -> None:
  _fit_tie(draft)
  xc.fit(draft)
  xc.fit_best(draft, 'hold_out_validation')
  if draft.options['test_split'] != 'time':
    draft.refuse('test_share', 'with --test_split=last, only with --test_split=time')


def _task(**attributes) -> task.Task:
  return task.Task(
    network=_network,
    metrics=(
      'hit@10',
      'ndcg@10',
      'hit@1',
      'hit@5',
      'hit@20',
      'ndcg@20',
      'recall@10',
      'hit@10_validation',
      'ndcg@10_validation',
    ),
    best_by='ndcg@10_validation',
    rounds=200,
    clients_per_round=32,
    eval_every=20,
    # We compared server learning rates of 0.003 and 0.01, and feature learning rates of 30 and
    # 300, in 100 rounds of FullSoftmax on items-demo. All pairs score alike, except that 0.01 for
    # the server with 30 for features scores lower.
    defaults={**task.FROM_SCRATCH, 'client_learning_rate': 1.0},
    by_algorithm={'centralized': _CENTRALIZED},
    fit=_fit,
    **attributes,
  )


_SIZES = {
  'embedding_dim': 64,
  'feature_dim': 64,
  'hidden_dim': 128,
  'examples_per_round': 0,
  'feature_learning_rate': 30.0,
}
TASKS = (
  _task(
    name='items',
    summary='items that your users took, with the next item to predict: --data_dir is a table'
    ' with a row for each time that a user took an item',
    read=_read,
    options=task.options(*xc.BAGS, TIE, *NETWORK, *OPTIONS, **_SIZES),
    data='a .csv, .tsv, .jsonl or .parquet with a user (--user_column), an item'
    ' (--item_column) and optionally a time (--time_column) in each row',
    data_is_named=True,
  ),
  _task(
    name='items-demo',
    summary='procedural histories with the sizes of a small set of ratings: 1,682 items, 943 users',
    read=_draw,
    licence=task.DRAWN,
    options=task.options(
      *xc.BAGS,
      TIE,
      *NETWORK,
      *_HISTORY,
      task.NUM_CLASSES,
      task.NUM_CLIENTS,
      task.DATA_SEED,
      *_SHAPE,
      num_classes=1682,
      num_clients=943,
      **_SIZES,
    ),
  ),
)
