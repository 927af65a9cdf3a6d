"""Tasks on procedural handwriting, features and faces, and on Omniglot.

`glyphs` and `features` have options for all sizes; their defaults are small enough for a first
run. The other procedural tasks have the sizes of the papers' data sets (FedSS, TurboSVM-FL): the
same numbers of classes and clients, and of examples and classes per client.
"""

import dataclasses
import functools

from tasks import leaf, own_data, task
from tff_xc import errors
from tff_xc.options import hyperparameters as hp

_DIRICHLET = 'dirichlet'
_SHAPE = (
  task.NUM_CLASSES,
  task.NUM_CLIENTS,
  task.CLASSES_PER_CLIENT,
  hp.Hyperparameter(
    'examples_per_client',
    60,
    'number of examples of each client in generated data',
    least=1,
    most=10**7,
  ),
  hp.Hyperparameter(
    'consecutive_classes',
    False,
    'give each client of generated data consecutive classes, as if a list sorted by class were'
    ' cut into clients. false: each client draws its classes at random',
  ),
)
_GROUPS = (
  hp.Hyperparameter(
    'class_groups',
    0,
    'number of groups of similar classes in generated data. Glyphs of a group share all strokes'
    ' except one, and features of a group lie near each other. 0: no groups',
    least=0,
  ),
  hp.Hyperparameter(
    'group_share',
    0.0,
    "share of a client's classes that come from one group of --class_groups. Each client draws"
    " this group at random. The client's other classes come from all groups",
    least=0,
    most=1,
  ),
)
_POINTS = (
  task.NUM_FEATURES.with_default(64),
  hp.Hyperparameter(
    'feature_noise',
    1.0,
    'standard deviation of the noise in each generated feature. For comparison: the standard'
    ' deviation is 0.5 for class centers, and 0.7 for group centers',
    least=0,
    most=1000,
  ),
)
_ANY = (
  *_SHAPE,
  *_GROUPS,
  hp.Hyperparameter(
    'classes_least',
    0,
    'number of classes of the smallest client in generated data. The number of examples of a'
    ' client is proportional to its number of classes. 0: every client has --classes_per_client'
    ' classes',
    least=0,
  ),
  hp.Hyperparameter(
    'classes_most',
    0,
    'number of classes of the largest client in generated data; use it with --classes_least',
    least=0,
  ),
  dataclasses.replace(own_data.SPLIT, choices=('', _DIRICHLET)),
  task.CONCENTRATION,
  hp.Hyperparameter(
    'size_deviation',
    0.0,
    'with --split=dirichlet: standard deviation of the logarithm of client sizes. The sizes are'
    ' log-normal with mean --examples_per_client. 0: equal sizes',
    least=0,
    most=10,
  ),
  task.DATA_SEED,
)
# Options that apply to only one value of --split, by this value.
_BY_SPLIT = {
  _DIRICHLET: ('concentration', 'size_deviation'),
  '': ('classes_per_client', 'classes_least', 'classes_most', 'consecutive_classes', 'group_share'),
}
_RETRIEVAL_CLASSES = hp.Hyperparameter(
  'retrieval_classes',
  200,
  'number of additional classes that are not in training. Their images measure how well the model'
  ' retrieves images of new classes',
  least=1,
  most=10**7,
)


def _fit(draft: task.Draft) -> None:
  """Refuses options that belong to a different value of --split."""
  if draft.options['split']:
    other, why, cure = '', f'with --split={_DIRICHLET}', 'leave one of them out'
  else:
    other, why, cure = _DIRICHLET, f'without --split={_DIRICHLET}', 'give that, too'
  for name in _BY_SPLIT[other]:
    draft.refuse(name, why, cure)


def _read(preset, data_dir, options):
  del data_dir  # The examples are generated.
  from datasets.procedural import features, glyphs

  shape = (*_SHAPE, *_GROUPS, *_POINTS, _RETRIEVAL_CLASSES)
  changes = {o.name: options[o.name] for o in shape if o.name in options}
  ends = options.get('classes_least', 0), options.get('classes_most', 0)
  if any(ends):
    if not 1 <= ends[0] <= options['classes_per_client'] <= ends[1]:
      raise errors.InputError(
        f'--classes_least={ends[0]} --classes_most={ends[1]}: the mean,'
        f' --classes_per_client={options["classes_per_client"]}, lies between them'
      )
    changes['classes_range'] = ends
  if options.get('split') == _DIRICHLET:
    changes |= {name: options[name] for name in _BY_SPLIT[_DIRICHLET]}
  if 'data_seed' in options:
    changes['seed'] = options['data_seed']
  source = features if preset in features.PRESETS else glyphs
  return source.load_preset(preset, **changes)


def _task(name, summary, metrics, options=(), network=task.image_network, own=None, **more):
  return task.Task(
    name=name,
    summary=summary,
    read=functools.partial(_read, name),
    network=network,
    metrics=metrics,
    licence=task.DRAWN,
    defaults={**task.FROM_SCRATCH, **(own or {})},
    options=(*task.Task.options, *options),
    **more,
  )


TASKS = (
  _task(
    'glyphs',
    'procedural handwriting of any size; small by default, for a first run',
    ('top1', 'macro_f1', 'mcc', 'train_top1'),
    rounds=150,
    clients_per_round=16,
    eval_every=10,
    options=_ANY,
    fit=_fit,
    own={'negatives': 40},
  ),
  # The class table is nine tenths of the model, so the savings of FedSS are visible.
  _task(
    'glyphs-demo',
    '2,000 classes and a small encoder: shows in minutes what sampled class rows save',
    ('top1', 'train_top1'),
    num_classes=2_000,
    rounds=200,
    clients_per_round=16,
    eval_every=25,
    network=functools.partial(task.image_network, filters=16),
    own={'negatives': 200, 'batch_size': 16, 'server_learning_rate': 0.01},
  ),
  _task(
    'glyphs-retrieval',
    'procedural handwriting, with images of unseen classes to retrieve',
    ('map@10', 'map@r', 'top1', 'train_top1'),
    rounds=150,
    clients_per_round=16,
    eval_every=50,
    options=(*_ANY, _RETRIEVAL_CLASSES),
    fit=_fit,
    own={'negatives': 40},
  ),
  _task(
    'glyphs-landmarks',
    'handwriting with the sizes of Landmarks-User-160k: 2,028 classes, 1,262 skewed clients',
    ('top1', 'train_top1'),
    num_classes=2_028,
    rounds=5000,
    clients_per_round=64,
    eval_every=50,
  ),
  _task(
    'glyphs-sop',
    'handwriting with the sizes of SOP: 11,318 classes, 596 clients, unseen classes to retrieve',
    ('map@10', 'map@r', 'train_top1'),
    num_classes=11_318,
    rounds=2000,
    clients_per_round=32,
    eval_every=100,
  ),
  _task(
    'glyphs-imagenet21k',
    'handwriting with the sizes of ImageNet-21k: 21,841 classes, 25,691 clients',
    ('top1', 'train_top1'),
    num_classes=21_841,
    rounds=25000,
    clients_per_round=64,
    eval_every=500,
    own={'negatives': 800},
  ),
  _task(
    'features',
    'procedural features of any size, like those of a pretrained encoder, for a perceptron',
    ('top1', 'macro_f1', 'mcc', 'train_top1'),
    rounds=150,
    clients_per_round=16,
    eval_every=10,
    options=(*_ANY, *_POINTS, *task.options(task.HIDDEN_DIM, hidden_dim=128)),
    network=own_data.perceptron,
    fit=_fit,
    own={'negatives': 40},
  ),
  # The server optimizer, the batch size and the number of negatives are those of the paper (FedSS,
  # §4.1 and 4.2).
  # The paper's client learning rate of 0.01 is for a pretrained network. From scratch, FedSS
  # scores 0.4 % after 40 rounds with a rate of 0.03, and 4 % after 50 rounds with 0.1.
  _task(
    'features-landmarks',
    'features with the sizes of Landmarks-User-160k, with similar classes on each client',
    ('top1', 'train_top1'),
    num_classes=2_028,
    rounds=5000,
    clients_per_round=64,
    eval_every=250,
    options=task.options(
      *_GROUPS,
      *_POINTS,
      task.HIDDEN_DIM,
      task.DATA_SEED,
      class_groups=20,
      group_share=0.75,
      hidden_dim=128,
    ),
    network=own_data.perceptron,
    own={
      'negatives': 80,
      'batch_size': 32,
      'server_optimizer': 'sgd',
      'server_learning_rate': 1.0,
      'server_momentum': 0.9,
    },
  ),
  task.Task(
    name='glyphs-femnist',
    summary='handwriting with the sizes of FEMNIST: 62 classes, 3,195 writers with any classes',
    read=functools.partial(_read, 'glyphs-femnist'),
    licence=task.DRAWN,
    **leaf.FEMNIST,
    options=(*leaf.EMBEDDING, task.DATA_SEED),
  ),
  task.Task(
    name='faces-celeba',
    summary='procedural faces with the sizes of CelebA: smiling or not, 8,408 celebrities',
    read=lambda data_dir, options: task.at('procedural.faces:load')(seed=options['data_seed']),
    licence=task.DRAWN,
    **leaf.CELEBA,
    options=(task.DATA_SEED,),
  ),
  # Omniglot is not an experiment of the papers. It has real clients and fits any machine.
  # It trains from scratch, whereas the papers start from pretrained encoders. With a client
  # learning rate of 0.1, SGD with momentum on the server hardly changes the model within
  # hundreds of rounds, so the server uses Adam.
  task.Task(
    name='omniglot',
    summary='964 handwritten characters, 480 real drawers as clients',
    read=lambda data_dir, options: task.at('omniglot:load')(data_dir),
    network=task.image_network,
    metrics=('top1', 'macro_f1', 'mcc', 'map@10', 'map@r', 'train_top1'),
    rounds=1000,
    clients_per_round=32,
    eval_every=50,
    targets=('top1:0.5',),
    defaults=task.FROM_SCRATCH,
    num_classes=964,
    # As many examples as in a federated round: 32 clients with 32 examples on average.
    by_algorithm={'centralized': {'steps_per_round': 32}},
    find=task.at('omniglot:find'),
    licence='MIT (Lake et al.)',
    data='omniglot: omniglot_1623.npz, or images_background and'
    ' images_evaluation as folders or zips',
  ),
)
