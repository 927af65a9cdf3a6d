"""A trained model as one function of a batch of raw examples.

`launch.export` writes a `Predictor` to files, and `launch.predict` calls one. A `Predictor`
is a `tf.Module` whose graph contains no Python code.
"""

import numpy as np
import tensorflow as tf

from tff_xc import classifier as classifier_lib
from tff_xc.data import description as description_lib, hashing, sparse

# The most scores of labels that are in memory at once, for heads that hash labels.
_SCORES = 2**23
# Pillow's weights of pixels are multiples of 1 / _STEPS.
_STEPS = 2.0**22
# TensorFlow Lite, as a placeholder that imports the module on first use; see
# `lean_tensorflow`.
lite = tf.lite
CLASSES, SCORES, EMBEDDING = 'classes', 'scores', 'embedding'


class Predictor(tf.Module):
  """Computes the k best classes, their scores, and the embedding of raw examples.

  Arguments by name, for B examples:
    images: uint8 [B, height, width(, channels)] of any size. Images are scaled and cropped
      like training images, with Pillow's bicubic filter.
    rows: float64 [B, D], the unscaled numbers of the user's table.
    ids int32 [E], values float32 [E], row_splits int32 [B + 1]: sparse features. The
      features of example i are at row_splits[i] : row_splits[i + 1].
    characters: uint8 [B, length], ASCII codes.
  Results by name:
    classes: int32 [B, k], best first.
    scores: float32 [B, k], the head's logits. The score of a hashed label is the mean or
      median over its buckets.
    embedding: float32 [B, d], or [B, R, d] for R parallel networks.
  """

  def __init__(
    self,
    model: classifier_lib.EmbeddingClassifier,
    weights: classifier_lib.ModelWeights,
    description: description_lib.Description,
    top: int = 5,
    any_size: bool = True,
    rows_type: tf.DType = tf.float64,
  ):
    """Creates the function; without `any_size`, images must have the network's input size."""
    super().__init__()
    self._model = model
    self._description = description
    self._top = min(top, model.num_classes)
    self._any_size = any_size
    self._rows_type = rows_type
    self._specs = model.weight_specs()
    self.weights = [tf.Variable(value, trainable=False) for value in tf.nest.flatten(weights)]
    self.predict = tf.function(self._predict, input_signature=self.signature(), autograph=False)

  def signature(self) -> tuple[tf.TensorSpec, ...]:
    """Returns the specs of the arguments, whose names are in `description.ARGUMENTS`."""
    kind, shape = self._description.kind, [*self._description.shape]
    if kind == description_lib.IMAGES:
      shape = [None, None, *shape[2:]] if self._any_size else shape
      return (tf.TensorSpec([None, *shape], tf.uint8, 'images'),)
    if kind == description_lib.ROWS:
      return (tf.TensorSpec([None, *shape], self._rows_type, 'rows'),)
    if kind == description_lib.CHARACTERS:
      return (tf.TensorSpec([None, *shape], tf.uint8, 'characters'),)
    return (
      tf.TensorSpec([None], tf.int32, 'ids'),
      tf.TensorSpec([None], tf.float32, 'values'),
      tf.TensorSpec([None], tf.int32, 'row_splits'),
    )

  def _predict(self, *raw):
    weights = tf.nest.pack_sequence_as(self._specs, [tf.convert_to_tensor(w) for w in self.weights])
    embeddings = self._model.embed(weights, self.examples(*raw))
    scores, classes = self._best(embeddings, weights.class_table)
    return {CLASSES: classes, SCORES: scores, EMBEDDING: embeddings}

  def examples(self, *raw):
    """Returns raw examples preprocessed to the network's input format."""
    found, how = self._description, self._description.preprocessing
    if found.kind == description_lib.SPARSE:
      ids, values, row_splits = raw
      if how['hashed']:
        # Look up hashes in a table, because few export formats have the integer type that
        # the hash function needs.
        every, size = np.arange(how['num_features']), found.shape[0]
        ids = tf.gather(hashing.buckets(every, hashing.FEATURE_SEED, size), ids)
      return sparse.SparseFeatures(row_splits, ids, values)
    [x] = raw
    if found.kind == description_lib.ROWS:
      if 'mean' in how:
        mean, deviation = (tf.constant(how[name], x.dtype) for name in ('mean', 'deviation'))
        x = (x - mean) / deviation
      return tf.cast(x, found.dtype)
    if found.kind == description_lib.CHARACTERS:
      codes = tf.constant(ascii_codes(how['alphabet']))
      return tf.cast(tf.gather(codes, tf.cast(x, tf.int32)), found.dtype)
    if self._any_size:
      x = squares(x, found.shape[0], how['fit'] == 'crop')
      x = tf.ensure_shape(x, [None, *found.shape])
    return x if found.dtype == 'uint8' else tf.cast(x, tf.float32) / 255

  def _best(self, embeddings, table):
    """Returns (scores float32 [B, k], classes int32 [B, k])."""
    head = self._model.head
    if head.scoring_rows(table) is not None:
      return tf.math.top_k(head.logits(embeddings, table, None), self._top)

    with tf.init_scope():  # Compute hashes outside the graph; see `examples`.
      rows = head.rows_of(tf.range(self._model.num_classes)).numpy()

    def best(block):
      # Compute like `label_scores`, but with operations that every export format has.
      of_rows = head.row_scores(block, table)
      taken = [tf.gather(of_rows, numbers) for numbers in rows.T]
      scores = tf.transpose(head.joined(taken))
      return tuple(tf.math.top_k(scores, self._top))

    # The scores of all labels for all examples may not fit in memory.
    size = tf.shape(embeddings)[0]
    at_once = max(1, _SCORES // self._model.num_classes)
    at_once = tf.maximum(1, tf.minimum(at_once, size))
    # `map_fn` needs at least one block to infer shapes, even if there are no examples.
    blocks = tf.maximum(1, (size + at_once - 1) // at_once)
    padded = tf.pad(embeddings, [[0, blocks * at_once - size], [0, 0], [0, 0]])
    shape = [blocks, at_once, *embeddings.shape[1:]]
    scores, classes = tf.map_fn(
      best,
      tf.reshape(padded, shape),
      fn_output_signature=(tf.float32, tf.int32),
      parallel_iterations=1,
    )

    def flat(t):
      return tf.reshape(t, [-1, self._top])[:size]

    return flat(scores), flat(classes)


def ascii_codes(alphabet: str) -> list[int]:
  """Returns the index in the alphabet for each byte; unknown bytes count as spaces."""
  places = {ord(character): i for i, character in enumerate(alphabet)}
  return [places.get(byte, places[ord(' ')]) for byte in range(256)]


def squares(x: tf.Tensor, side: int, crop: bool) -> tf.Tensor:
  """Scales images to squares like Pillow's `ImageOps.fit` or `Image.resize` (bicubic filter).

  Args:
    x: uint8 [B, height, width] or [B, height, width, channels], of any size.
    side: side length of the returned squares in pixels.
    crop: whether to crop the center as `fit` does. Otherwise the aspect ratio changes.

  Returns:
    uint8 [B, side, side(, channels)]. The pixels equal Pillow's, because float64
    represents the products and sums of Pillow's rounded weights exactly.
  """
  planes = tf.cast(x if x.shape.rank == 4 else x[..., None], tf.float64)
  height, width = tf.unstack(tf.shape(planes)[1:3])
  lengths = (tf.minimum(height, width),) * 2 if crop else (height, width)
  rows, columns = (
    _weights(size, length, side) for size, length in zip((height, width), lengths, strict=True)
  )
  # Like Pillow, scale horizontally, round to integers, and then scale vertically.
  planes = _whole(tf.matmul(columns, planes))
  channels = tf.shape(planes)[3]
  planes = tf.reshape(planes, [-1, height, side * channels])
  planes = _whole(tf.matmul(rows, planes))
  shape = [-1, side, side]
  if x.shape.rank == 4:
    shape.append(channels)
  return tf.cast(tf.reshape(planes, shape), tf.uint8)


def _whole(levels: tf.Tensor) -> tf.Tensor:
  return tf.clip_by_value(tf.floor(levels + 0.5), 0.0, 255.0)


def _weights(size: tf.Tensor, length: tf.Tensor, side: int) -> tf.Tensor:
  """Returns weights float64 [side, size] that scale the middle `length` pixels to `side`."""
  size, length = tf.cast(size, tf.float64), tf.cast(length, tf.float64)
  scale = length / side
  centres = (size - length) / 2 + (tf.range(side, dtype=tf.float64) + 0.5) * scale
  places = tf.range(size) + 0.5
  x = tf.abs(places - centres[:, None]) / tf.maximum(scale, 1.0)
  near = (1.5 * x - 2.5) * x * x + 1
  far = ((2.5 - 0.5 * x) * x - 4) * x + 2
  weights = tf.where(x < 1, near, tf.where(x < 2, far, tf.zeros_like(x)))
  weights /= tf.reduce_sum(weights, axis=1, keepdims=True)
  return tf.round(weights * _STEPS) / _STEPS
