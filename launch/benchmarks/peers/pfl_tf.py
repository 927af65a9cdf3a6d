"""pfl-research (PyPI: pfl[tf]) with TensorFlow, as a contender of `round`.

Runs under an interpreter that has pfl: pfl_tf.py ARRAYS.npz. Federated
averaging of LEAF's FEMNIST CNN from the weights in the file, by the library's
own `FederatedAveraging` and `SimulatedBackend`.
"""

import os
import sys

# Under Keras 3 pfl federates only the last layer, because it keys variables by
# name and Keras 3 repeats names.
os.environ['TF_USE_LEGACY_KERAS'] = '1'
os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '2')

import inputs
import protocol
import rounds
import tensorflow as tf
from pfl.data.tensorflow import TFTensorDataset
from pfl.model.tensorflow import TFModel


def _build_network(arrays):
  layers = tf.keras.layers
  width, classes = arrays['class/kernel'].shape
  x = images = tf.keras.Input([28, 28])
  x = layers.Reshape([28, 28, 1])(x)
  for filters in (32, 64):
    x = layers.Conv2D(filters, 5, padding='same', activation='relu')(x)
    x = layers.MaxPool2D()(x)
  x = layers.Dense(width, 'relu')(layers.Flatten()(x))
  network = tf.keras.Model(images, layers.Dense(classes)(x))
  network.set_weights([arrays[name] for name in rounds.WEIGHTS])
  network.compile(
    optimizer=tf.keras.optimizers.SGD(float(arrays['learning_rate'])),
    loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
  )
  return network


def build():
  """Returns the contender."""
  arrays = inputs.load(*sys.argv[1:])
  network = _build_network(arrays)
  model = TFModel(
    model=network, metrics={}, central_optimizer=tf.keras.optimizers.SGD(1.0)
  )
  datasets = {
    str(k): TFTensorDataset(tf.constant(x), tf.constant(y), user_id=str(k))
    for k, (x, y) in enumerate(zip(arrays['x'], arrays['y']))  # noqa: B905
  }
  return rounds.Rounds(
    model,
    datasets,
    arrays,
    before=[arrays[name] for name in rounds.WEIGHTS],
    weights=lambda: [v.numpy() for v in network.trainable_variables],
  )


protocol.serve(build)
