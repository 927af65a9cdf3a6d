"""A small data set in memory with a model, and settings of small tasks."""

import collections
import pathlib

import numpy as np
import tensorflow as tf

from tasks import configuration, experiment
from tests import doubling
from tff_xc import classifier, heads
from tff_xc.data import client_data, partition, pool
from tff_xc.encoders import encoder


def images(clients: int = 6, num_classes: int = 8):
  """Returns (data set, model). Each client has 10 images of 4 classes."""
  random = np.random.default_rng(0)
  owners = np.arange(10 * clients) // 10
  y = (np.arange(10 * clients) % 4 + owners) % num_classes
  examples = pool.in_memory(random.integers(0, 256, (len(y), 16, 16), np.uint8), y)
  dataset = client_data.FederatedDataset(
    name='small-images',
    num_classes=num_classes,
    train=client_data.PartitionedClientData(examples, partition.of_owners(owners)),
    test=examples.subset(np.arange(12)),
  )
  model = classifier.EmbeddingClassifier(_linear_encoder(), heads.CosineHead(4.0), num_classes)
  return dataset, model


def _linear_encoder() -> encoder.Encoder:
  def init(seed):
    kernel = tf.random.stateless_normal([256, 4], seed, stddev=0.1)
    return collections.OrderedDict(kernel=kernel)

  def apply(weights, state, x, training, seed):
    pixels = tf.reshape(tf.cast(x, tf.float32) / 255.0, [-1, 256])
    return tf.matmul(pixels, weights['kernel']), state

  spec = tf.TensorSpec([16, 16], tf.uint8)
  return encoder.Encoder(spec, 4, init, apply)


FEATURES = {
  'num_classes': 12,
  'num_clients': 6,
  'classes_per_client': 3,
  'examples_per_client': 5,
  'embedding_dim': 4,
  'hidden_dim': 4,
}
GLYPHS = {
  'num_classes': 10,
  'num_clients': 8,
  'classes_per_client': 3,
  'examples_per_client': 12,
  'embedding_dim': 4,
  'batch_size': 4,
  'clients_per_round': 3,
  'eval_every': 2,
}

# Flags of `launch.train`.
SPARSE_WORDS = (
  '--task=sparse-words',
  '--num_classes=10',
  '--num_features=32',
  '--feature_dim=4',
  '--hidden_dim=4',
  '--embedding_dim=4',
  '--classes_per_client=2',
  '--clients_per_round=3',
)


def trained_and_resumed(folder: pathlib.Path, algorithm: str, **given) -> dict[str, np.ndarray]:
  """Trains four rounds without a stop, and four rounds with a stop after two.

  The runs are in `folder`/straight and `folder`/resumed. Checks that both keep equal checkpoints
  and client states, and returns the arrays of the last checkpoint.
  """
  for name, rounds in (('straight', 4), ('resumed', 2), ('resumed', 4)):
    changes = {**GLYPHS, **given, 'rounds': rounds}
    config = configuration.resolve('glyphs', algorithm, changes)
    experiment.assemble(config).run(str(folder / name))
  doubling.assert_same_arrays(folder / 'resumed', folder / 'straight')
  with np.load(folder / 'straight' / 'checkpoints' / 'round_4.npz') as file:
    return {n: file[n] for n in file.files}


def kept_by_clients(run_dir: pathlib.Path) -> dict[int, dict[str, np.ndarray]]:
  """Returns the state of each client after the four rounds of a run."""
  with np.load(run_dir / 'checkpoints' / 'round_4.npz') as file:
    ids, rounds = (file[f'more:client_{n}'].tolist() for n in ('ids', 'rounds'))
  return {
    client: dict(np.load(run_dir / 'client_states' / f'{client}_{at}.npz'))
    for client, at in zip(ids, rounds, strict=True)
  }
