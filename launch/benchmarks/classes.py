"""Measures how the time and the memory of a FedSS round depend on the number of classes n.

The contender 'dp' is differentially private, so all n rows get noise in every round.
"""

import numpy as np

from launch.benchmarks import round as round_lib
from tff_xc import classifier, heads
from tff_xc.algorithms import fedss
from tff_xc.encoders import conv
from tff_xc.round import examples as examples_lib, local_training
from tff_xc.runtime import registry

_OWN_CLASSES, _NEGATIVES = 20, 80


def make_clients(sizes, num_classes: int):
  """Returns a cohort. The images of each client belong to 20 classes in turn."""
  random, made = np.random.default_rng(0), []
  for client in range(sizes.clients):
    x = random.integers(0, 256, [sizes.examples, 28, 28], np.uint8)
    y = random.choice(num_classes, _OWN_CLASSES, replace=False, shuffle=False)
    y = np.resize(y.astype(np.int32), sizes.examples)
    made.append(examples_lib.ClientExamples(x, y, np.int64(client), y))
  return made


def make_process(sizes, num_classes: int, is_private: bool = False):
  """Returns a FedSS process with the small convolutional encoder."""
  encoder = conv.build_conv_encoder(embedding_dim=sizes.embedding_dim)
  private = {'dp': 'central', 'dp_noise_seed': 'public', 'clients_per_round': sizes.clients}
  return fedss.build_fedss(
    model=classifier.EmbeddingClassifier(encoder, heads.CosineHead(20.0), num_classes),
    max_positives=_OWN_CLASSES,
    negatives=_NEGATIVES,
    local_training=local_training.LocalTraining(0.1, sizes.batch_size, 1),
    **(private if is_private else {}),
  )


def build(contender, sizes):
  """Builds a contender NAME@N in its own process."""
  name, _, size = contender.partition('@')
  registry.install('worker' if name == 'worker' else 'in_process')
  process = make_process(sizes, int(size), name == 'dp')
  return round_lib.of_process(
    process,
    process.initialize(),
    make_clients(sizes, int(size)),
    lambda state, metrics: {k: float(metrics[k]) for k in ('loss', 'class_rows')},
  )
