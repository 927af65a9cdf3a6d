"""LEAF's data sets as TurboSVM-FL uses them, from its Table 8 and its published code.

Wang, Bodonhelyi, Bozkir, Kasneci: "TurboSVM-FL: Boosting Federated Learning
through SVM Aggregation for Lazy Clients", AAAI 2024, arXiv:2401.12012. All runs
have 201 rounds of 8 clients with one local epoch, and test on the pooled examples
of all test users. The code drops users with fewer than 64 (FEMNIST), 8 (CelebA) and
64 (Shakespeare) examples.

Tasks whose names end in -tff read the data sets that TFF hosts; `tff_sets` says how
they differ from LEAF's.
"""

import functools

from tasks import task
from tff_xc.algorithms import base
from tff_xc.options import hyperparameters as hp

METRICS = ('top1', 'macro_f1', 'mcc')
ROUNDS = 201
# Numbers of users of the whole data sets. By default, LEAF's preprocess.sh keeps only a sample.
_USERS = {'femnist': 3_550, 'celeba': 9_343, 'shakespeare': 1_129}
EMBEDDING = task.options(task.EMBEDDING_DIM, embedding_dim=2048)
_OF_DATA = (
  hp.Hyperparameter(
    'min_examples',
    64,
    'leave out users with fewer examples than this, in training and test',
    least=1,
  ),
  task.TEST_EXAMPLES,
)
_DROP_DUPLICATES = hp.Hyperparameter(
  'drop_duplicates',
  False,
  "leave out the duplicate of a writer's first image that LEAF's scripts create",
)


def femnist_network(options, description):
  """Returns LEAF's CNN for images float32 [28, 28], and a linear head."""
  from tff_xc.encoders import leaf

  encoder = leaf.build_femnist_encoder(embedding_dim=options['embedding_dim'])
  return task.classifier(encoder, description)


def _built(builder: str, options, description):
  """Returns the classifier with the encoder of a function of `tff_xc.encoders.leaf`."""
  del options
  from tff_xc.encoders import leaf

  return task.classifier(getattr(leaf, builder)(), description)


def _read(name, data_dir, options):
  from datasets.leaf import sets

  names = {o.name for o in (*_OF_DATA, _DROP_DUPLICATES)} & options.keys()
  return sets.load(name, data_dir, **{n: options[n] for n in names})


def _find_json(name, data_dir):
  from datasets.leaf import files, users

  if name == 'femnist':
    json = there = files.find(name, data_dir)
  elif name == 'celeba':
    json, _ = there = files.find_celeba(data_dir)
  else:
    json = there = files.find_shakespeare(data_dir)
  if isinstance(json, files.Files):
    users = users.count_users([*json.train, *json.test, *json.all])
    if users is not None and users < _USERS[name]:
      return task.Part(f'{users:,} of {_USERS[name]:,} users')
  return there


def _settings(client_rate, server_rate, logits_rate, batch, target, **more):
  """Returns fields of a `Task`: the settings of Tables 2 and 8, and `more`."""
  of_server = {'server_learning_rate': server_rate}
  of_logits = {'logits_learning_rate': logits_rate}
  return {
    'metrics': METRICS,
    'rounds': ROUNDS,
    'clients_per_round': 8,
    'eval_every': 1,
    'targets': (f'top1:{target}',),
    'lacks': (base.COSINES,),
    'defaults': {'client_learning_rate': client_rate, 'batch_size': batch, 'local_epochs': 1},
    'by_algorithm': {
      'fedadam': of_server,
      'fedams': of_server,
      'fedaws_softmax': of_logits,
      'turbosvm': of_logits,
    },
    **more,
  }


# The settings that LEAF's FEMNIST, its TFF version and `glyphs-femnist` share.
FEMNIST = _settings(
  client_rate=0.1,
  server_rate=1e-3,
  logits_rate=1e-2,
  batch=64,
  target=0.7,
  num_classes=62,
  network=femnist_network,
)
CELEBA = _settings(
  client_rate=1e-3,
  server_rate=1e-3,
  logits_rate=1e-2,
  batch=8,
  target=0.7,
  num_classes=2,
  network=functools.partial(_built, 'build_celeba_encoder'),
  metrics=(*METRICS, 'test_loss'),  # Table 12 has the test loss.
)
_OF_PHOTOGRAPHS = {
  'options': task.options(*_OF_DATA, min_examples=8),
  'licence': 'non-commercial research only (CelebA)',
}
# Table 8 has 1.0 as the logits' learning rate. We use 0.1, like the published code. Runs evaluate
# only every 5 rounds, because the test set has 400,000 examples. That is more than the clients of
# ten rounds have together.
_SHAKESPEARE = _settings(
  client_rate=1.0,
  server_rate=1e-2,
  logits_rate=1e-1,
  batch=64,
  target=0.5,
  eval_every=5,
  num_classes=80,
  network=functools.partial(_built, 'build_shakespeare_encoder'),
  options=task.options(*_OF_DATA, task.EXAMPLES_PER_ROUND, examples_per_round=0),
)


def _task(name: str, summary: str, settings, data: str, **more) -> task.Task:
  find = functools.partial(_find_json, name)
  if name.endswith('-tff'):
    find = task.at('leaf.files:find_tff', name.removesuffix('-tff'))
  return task.Task(
    name=name,
    summary=summary,
    read=functools.partial(_read, name),
    find=find,
    data=data,
    **settings,
    **more,
  )


TASKS = (
  _task(
    'femnist',
    '62 digits and letters of 3,550 real writers, 805,263 images',
    FEMNIST,
    "femnist: LEAF's JSON, train/*.json and test/*.json or"
    ' all_data/*.json, in the folder femnist or leaf',
    options=(*EMBEDDING, *_OF_DATA, _DROP_DUPLICATES),
  ),
  _task(
    'celeba',
    'smiling or not: 200,288 photographs of 9,343 celebrities',
    CELEBA,
    "celeba: LEAF's JSON, train/*.json and test/*.json or all_data/*.json,"
    ' and img_align_celeba as a folder or zip, in the folder celeba',
    **_OF_PHOTOGRAPHS,
  ),
  _task(
    'shakespeare',
    'the next character, one of 80: 4,226,158 examples of 1,129 roles',
    _SHAKESPEARE,
    "shakespeare: LEAF's JSON, train/*.json and test/*.json or"
    " all_data/*.json; or Project Gutenberg's pg100.txt or pg100.txt.gz, also in"
    ' the folder gutenberg',
  ),
  _task(
    'emnist-tff',
    "TFF's version of femnist, which differs from LEAF's: 3,400 writers, 749,068 images",
    FEMNIST,
    'emnist: fed_emnist_train.h5 and fed_emnist_test.h5, or emnist_all.sqlite',
    options=(*EMBEDDING, *_OF_DATA),
  ),
  _task(
    'celeba-tff',
    "TFF's version of celeba: LEAF's celebrities and images, a different split",
    CELEBA,
    'celeba: celeba_train.h5 and celeba_test.h5, or celeba.sqlite',
    **_OF_PHOTOGRAPHS,
  ),
  _task(
    'shakespeare-tff',
    "TFF's version of shakespeare, which differs from LEAF's: 715 roles, 2,585,814 examples",
    _SHAKESPEARE,
    'shakespeare: shakespeare_train.h5 and shakespeare_test.h5, or shakespeare.sqlite',
  ),
)
