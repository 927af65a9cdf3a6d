"""Measures how a round's time and memory depend on n, the number of classes, in FedSS.

Contenders 'dp' are differentially private: all n rows get noise in every round.
'fullsoftmax' trains all n rows. 'clients@K', 'examples@K' and 'embedding_dim@K' change
another size than n, at its first value, in process:

  python -m launch.benchmark classes --contenders=clients@10,clients@100,clients@1000
"""

from launch.benchmarks import harness

_OWN_CLASSES, _NEGATIVES = 20, 80
_OTHER_SIZES = ('clients', 'examples', 'embedding_dim')


def make_clients(sizes, num_classes: int):
  """Returns a cohort whose clients have images of 20 classes in turn."""
  import numpy as np

  from tff_xc.round import examples as examples_lib

  random, made = np.random.default_rng(0), []
  for client in range(sizes.clients):
    x = random.integers(0, 256, [sizes.examples, 28, 28], np.uint8)
    y = random.choice(num_classes, _OWN_CLASSES, replace=False, shuffle=False)
    y = np.resize(y.astype(np.int32), sizes.examples)
    made.append(examples_lib.ClientExamples(x, y, np.int64(client), y))
  return made


def make_process(sizes, num_classes: int, name: str = 'in_process'):
  """Returns FedSS, or of 'fullsoftmax' FedAvg, on the small conv encoder."""
  from tff_xc import classifier, heads
  from tff_xc.algorithms import fedss
  from tff_xc.encoders import conv
  from tff_xc.round import local_training, privacy

  encoder = conv.build_conv_encoder(embedding_dim=sizes.embedding_dim)
  model = classifier.EmbeddingClassifier(encoder, heads.CosineHead(20.0), num_classes)
  local = local_training.LocalTraining(0.1, sizes.batch_size, 1)
  if name == 'fullsoftmax':
    return fedss.build_fullsoftmax(model=model, local_training=local)
  return fedss.build_fedss(
    model=model,
    max_positives=_OWN_CLASSES,
    negatives=_NEGATIVES,
    privacy=privacy.Privacy(1.0, 1.0, float(sizes.clients)) if name == 'dp' else None,
    local_training=local,
  )


def build(contender, sizes):
  """Builds a contender NAME@N, in its own process."""
  from launch.benchmarks import rounds
  from tff_xc.runtime import registry

  name, _, size = contender.partition('@')
  num_classes = int(size)
  if name in _OTHER_SIZES:
    num_classes = sizes.num_classes[0]
    setattr(sizes, name, int(size))
  registry.install('worker' if name == 'worker' else 'in_process')
  process = make_process(sizes, num_classes, name)
  cohort = make_clients(sizes, num_classes)
  return rounds.of_process(
    process,
    process.initialize(),
    cohort,
    lambda state, metrics: {k: float(metrics[k]) for k in ('loss', 'class_rows')},
  )


BENCHMARK = harness.Benchmark(
  name='classes',
  summary='FedSS, 32 clients with 100 rows each, n = 10,000 to 1,000,000',
  sizes={
    'clients': 32,  # Clients of a round.
    'examples': 20,  # Images of a client, of 20 classes in turn.
    'batch_size': 32,  # Of local training, one epoch.
    'embedding_dim': 64,  # The length of a row.
    # Values of n; the messages of TFF's worker are limited to 2 GB.
    'num_classes': (10_000, 100_000, 1_000_000),
  },
  small={'clients': 2, 'num_classes': (200, 400)},
  by='num_classes',
  names=('in_process', 'worker', 'dp'),
  optional=('fullsoftmax', *_OTHER_SIZES),
  build=build,
  ratios=(('worker', 'in_process'), ('dp', 'in_process'), ('in_process', 'fullsoftmax')),
  same=('in_process', 'worker'),
  tolerances={'loss': 1e-3, 'class_rows': 1e-6},
)
