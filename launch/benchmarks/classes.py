"""Measures how a round's time depends on n, the number of classes, in FedSS.

The contenders 'dp' are differentially private: all n rows get noise in every round.
"""

import dataclasses

from launch.benchmarks import spec

_OWN_CLASSES, _NEGATIVES = 20, 80
_PRIVATE = 'dp'


@dataclasses.dataclass(frozen=True)
class Settings:
  """Sizes of a round."""

  clients: int = 32  # Clients of a round.
  batch_size: int = 32  # Of local training on 20 examples, one epoch.
  # Values of n for the in-process runtime.
  num_classes: tuple[int, ...] = (10_000, 100_000, 1_000_000)
  # Values of n for TFF's worker, whose messages are limited to 2 GB.
  worker_num_classes: tuple[int, ...] = (10_000, 100_000, 1_000_000)
  # Values of n with differential privacy, in process.
  dp_num_classes: tuple[int, ...] = (10_000, 100_000, 1_000_000)


def make_clients(
  clients: int, num_classes: int, examples: int = _OWN_CLASSES, side: int = 28
):
  """Returns a cohort whose clients have images of 20 classes in turn."""
  import numpy as np

  from tff_xc.round import examples as examples_lib

  random = np.random.default_rng(0)

  def make(client):
    x = random.integers(0, 256, [examples, side, side], np.uint8)
    y = random.choice(num_classes, _OWN_CLASSES, replace=False, shuffle=False)
    y = np.resize(y.astype(np.int32), examples)
    return examples_lib.ClientExamples(x, y, np.int64(client), y)

  return [make(client) for client in range(clients)]


def make_process(num_classes: int, batch_size: int, hidden=None, **encoder):
  """Returns FedSS with a cosine head on the small conv encoder, 64-d by default."""
  from tff_xc import classifier
  from tff_xc import heads
  from tff_xc.algorithms import fedss
  from tff_xc.encoders import conv
  from tff_xc.round import local_training

  return fedss.build_fedss(
    model=classifier.EmbeddingClassifier(
      conv.build_conv_encoder(**encoder), heads.CosineHead(20.0), num_classes
    ),
    max_positives=_OWN_CLASSES,
    negatives=_NEGATIVES,
    privacy=hidden,
    local_training=local_training.LocalTraining(0.1, batch_size, 1),
  )


def build(contender: str, settings: Settings):
  """Builds a contender 'RUNTIME@N', in its own process."""
  from launch.benchmarks import rounds
  from tff_xc.round import privacy
  from tff_xc.runtime import registry

  runtime, num_classes = spec.name_and_size(contender)
  hidden = None
  if runtime == _PRIVATE:
    runtime = 'in_process'
    hidden = privacy.Privacy(1.0, 1.0, float(settings.clients))
  registry.install(runtime)
  process = make_process(int(num_classes), settings.batch_size, hidden)
  return rounds.of_process(
    process,
    process.initialize(),
    make_clients(settings.clients, int(num_classes)),
    lambda state, metrics: {
      'loss': float(metrics['loss']),
      'class_rows': float(metrics['class_rows']),
    },
  )


BENCHMARK = spec.Benchmark(
  name='classes',
  summary='FedSS, 32 clients with 100 rows each, n = 10,000 to 1,000,000',
  settings=Settings,
  small={
    'clients': 2,
    'num_classes': (200, 400),
    'worker_num_classes': (200, 400),
    'dp_num_classes': (200, 400),
  },
  contenders=lambda settings: [
    *(spec.at('in_process', n) for n in settings.num_classes),
    *(spec.at('worker', n) for n in settings.worker_num_classes),
    *(spec.at(_PRIVATE, n) for n in settings.dp_num_classes),
  ],
  growth=('in_process', 'worker', _PRIVATE),
  ratios=(('worker', 'in_process'), (_PRIVATE, 'in_process')),
  groups=(('in_process', 'worker'),),
  tolerances={'loss': 1e-3, 'class_rows': 1e-6},
  build=build,
)
