"""A plain Keras loop on the photographs of `tests.photographs`, timed.

  python -m tests.keras_photographs DIRECTORY [IMAGES]

It is a process of its own, with TensorFlow's own number of threads, since the path
runs TensorFlow on one thread for each client. tf.data decodes the JPEGs of the tar,
enlarges and crops them as the path does; Keras's MobileNetV3-Large, with its
BatchNorm or with GroupNorm, a layer to 64 and a softmax over all classes take steps
of SGD on batches of 32. The last line printed is a JSON object.
"""

import json
import sys
import tarfile
import time

import tensorflow as tf

from launch.benchmarks import keras_mobilenet

SIDE, BATCH, EMBEDDING_DIM = 96, 32, 64
_STORED = -(-SIDE * 8 // 7)  # As `tasks.encoders.stored_side` of random crops.
_WARM_UP = 1  # Steps that are not counted: the first one builds the graph.


def jpegs(directory: str, count: int) -> list[bytes]:
  """Returns the first files of DIRECTORY/sop/images.tar."""
  with tarfile.open(f'{directory}/sop/images.tar') as tar:
    found = []
    for member in tar:
      found.append(tar.extractfile(member).read())
      if len(found) == count:
        break
  return found


def dataset(data: list[bytes]) -> tf.data.Dataset:
  """Returns batches (images float32 [32, 96, 96, 3], labels int32 [32])."""

  def decode(content, label):
    image = tf.image.resize(tf.io.decode_jpeg(content, 3), [_STORED, _STORED])
    return tf.image.random_crop(image, [SIDE, SIDE, 3]), label

  source = tf.data.Dataset.from_tensor_slices((data, tf.range(len(data))))
  decoded = source.map(decode, tf.data.AUTOTUNE)
  return decoded.batch(BATCH, drop_remainder=True).prefetch(2)


def seconds(step, batches) -> float:
  """Returns the seconds of an image, of all steps but the first."""
  images, start = 0, 0.0
  for number, batch in enumerate(batches):
    step(*batch)
    if number >= _WARM_UP:
      images += BATCH
    else:
      start = time.perf_counter()
  return (time.perf_counter() - start) / images


def training_step(num_classes: int, batch_norm: bool):
  """Returns a function of a batch that takes a step of SGD."""
  body = keras_mobilenet.embedding_model(SIDE, EMBEDDING_DIM, batch_norm)
  model = tf.keras.Sequential([body, tf.keras.layers.Dense(num_classes)])
  loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
  model.compile(tf.keras.optimizers.legacy.SGD(0.01), loss)
  return lambda x, y: model.train_on_batch(x, y % num_classes)


def measure(directory: str, count: int, num_classes: int = 750) -> dict:
  """Returns seconds an image: decoding alone, training alone, and both."""
  batches = dataset(jpegs(directory, count + BATCH * _WARM_UP))
  found = {'decoding': seconds(lambda *_: None, batches)}
  kept = list(batches)
  for norm in ('GroupNorm', 'BatchNorm'):
    step = training_step(num_classes, norm == 'BatchNorm')
    found[f'training, {norm}'] = seconds(step, kept)
    found[f'both, {norm}'] = seconds(step, batches)
  return found


if __name__ == '__main__':
  directory_, *count_ = sys.argv[1:]
  print(json.dumps(measure(directory_, *map(int, count_ or ['192']))))
