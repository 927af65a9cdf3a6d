"""A plain Keras loop on the photographs of `tests.photographs`, timed.

  python -m tests.keras_photographs DIRECTORY [STEPS]

It runs in a process of its own, with TensorFlow's own number of threads: the path
limits TensorFlow to one thread for each client. tf.data decodes the JPEGs of the tar,
scales them, bilinearly, and cuts crops of them; the path scales their middle square,
bicubically, and crops in the training step. Keras's MobileNetV3-Large, with its BatchNorm
or with GroupNorm, a layer to 64 dimensions and a softmax over all classes take steps
of SGD on batches of 32. The last line printed is a JSON object.
"""

import itertools
import json
import statistics
import sys
import tarfile
import time

import tensorflow as tf

from launch.benchmarks import keras_mobilenet

SIDE, BATCH, EMBEDDING_DIM = 96, 32, 64
_STORED = -(-SIDE * 8 // 7)  # As `tasks.encoders.stored_side` of random crops.
_DECODED = 2_000  # Images; a few hundred take too short a time.


def jpegs(directory: str, count: int) -> list[bytes]:
  """Returns the first `count` files of DIRECTORY/sop/images.tar, or all."""
  found = []
  with tarfile.open(f'{directory}/sop/images.tar') as tar:
    for member in tar:
      found.append(tar.extractfile(member).read())
      if len(found) == count:
        break
  return found


def batches_of(data: list[bytes]) -> tf.data.Dataset:
  """Returns batches (images float32 [32, 96, 96, 3], numbers int32 [32])."""

  def decode(content, number):
    image = tf.image.resize(tf.io.decode_jpeg(content, 3), [_STORED, _STORED])
    return tf.image.random_crop(image, [SIDE, SIDE, 3]), number

  source = tf.data.Dataset.from_tensor_slices((data, tf.range(len(data))))
  decoded = source.map(decode, tf.data.AUTOTUNE)
  return decoded.batch(BATCH, drop_remainder=True).prefetch(2)


def training_step(num_classes: int, batch_norm: bool):
  """Returns a function of a batch that takes a step of SGD."""
  body = keras_mobilenet.embedding_model(SIDE, EMBEDDING_DIM, batch_norm)
  model = tf.keras.Sequential([body, tf.keras.layers.Dense(num_classes)])
  loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
  model.compile(tf.keras.optimizers.legacy.SGD(0.01), loss)
  return lambda x, number: model.train_on_batch(x, number % num_classes)


class Clock:
  """Seconds of an image: the median over batches, but for the first."""

  def __init__(self):
    self._times = []

  def tick(self) -> None:
    self._times.append((time.perf_counter(), time.process_time()))

  def seconds(self, what: str) -> dict[str, float]:
    between = [
      [end - start for start, end in zip(*pair, strict=True)]
      for pair in itertools.pairwise(self._times)
    ]
    elapsed, processor = map(statistics.median, zip(*between, strict=True))
    return {
      f'{what}, elapsed': elapsed / BATCH,
      f'{what}, processor': processor / BATCH,
    }


def run(what: str, step, batches) -> dict[str, float]:
  """Takes steps; the first one, which builds the graph, is not counted."""
  clock = Clock()
  for batch in batches:
    step(*batch)
    clock.tick()
  return clock.seconds(what)


def measure(directory: str, steps: int, num_classes: int) -> dict:
  """Returns seconds an image by norm: decoding alone, training alone, and both."""
  data = jpegs(directory, _DECODED)
  # All at once: batches that are decoded ahead take no time of their own.
  start = time.perf_counter(), time.process_time()
  decoded = sum(len(number) for _, number in batches_of(data))
  alone = {
    'decoding, elapsed': (time.perf_counter() - start[0]) / decoded,
    'decoding, processor': (time.process_time() - start[1]) / decoded,
  }
  # It has more images than are taken, so that none is decoded before its time.
  batches = batches_of(data).take(steps + 1)
  kept, found = list(batches), {}
  for norm in ('GroupNorm', 'BatchNorm'):
    step = training_step(num_classes, norm == 'BatchNorm')
    trained = run('training', step, kept)
    found[norm] = alone | trained | run('both', step, batches)
  return found


if __name__ == '__main__':
  directory_, *steps_ = sys.argv[1:]
  print(json.dumps(measure(directory_, *map(int, steps_ or ['6']), 750)))
