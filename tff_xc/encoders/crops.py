"""Random crops and rotations of training images, in front of any encoder.

Stored examples are squares slightly larger than the encoder's input: their side is 8/7
of the input's, such as 256 pixels for 224. Training crops each image at random. Tests
crop the center. The random numbers depend on the image's index in the batch and on the
seed of the step, which is derived from (seed, round, client).

  'random'  a square with the encoder's side at a random position (FedSS resizes images
            to 256 pixels and crops 224 at random; to crop the center in tests is our
            choice)
  'scale'   8 to 100 % of the image's area with an aspect ratio of 3:4 to 4:3, scaled to
            the encoder's side and mirrored with probability 1/2 (Szegedy et al.: "Going
            Deeper with Convolutions", 2014; FedVC also varies scale and aspect ratio).
            The crop comes from the stored square and not from the whole photograph.
"""

import dataclasses
import math
import warnings

import tensorflow as tf

from tff_xc import errors
from tff_xc.encoders import encoder as encoder_lib, layers

MIDDLE, RANDOM, SCALE = 'middle', 'random', 'scale'
_AREA = 0.08, 1.0
_ASPECT = 3 / 4, 4 / 3
# The number of random boxes to try. If none of them fits, the whole image is used.
_TRIES = 10
# These numbers are folded into the seed of a step. The encoder itself must not use them.
_OF_CROP, _OF_ROTATION = 2**31 - 2, 2**31 - 1


def cropped(
  encoder: encoder_lib.Encoder, stored_side: int, crop: str = RANDOM, rotate: float = 0.0
) -> encoder_lib.Encoder:
  """Returns an encoder that crops stored images and passes them to `encoder`.

  Stored images are uint8 [stored_side, stored_side] or [.., .., channels]. Training first
  rotates them by up to `rotate` degrees with tensorflow-addons, which fills the corners by
  reflection. Then training crops the images to the encoder's side by the method `crop`:
  'middle', 'random' or 'scale'.
  """
  side, *rest = encoder.example_spec.shape
  if stored_side < side:
    raise errors.InputError(
      f'images of {stored_side} x {stored_side} pixels cannot be cropped to {side};'
      ' give a'
      ' smaller --image_size'
    )
  inner = encoder.apply

  def apply(trainable, non_trainable, x, training, seed):
    planes = x if x.shape.rank == 4 else x[..., None]
    if training and rotate:
      planes = rotated(planes, rotate, layers.fold(seed, _OF_ROTATION))
    how = crop if training else MIDDLE
    planes = _CROPS[how](planes, side, layers.fold(seed, _OF_CROP))
    x = planes if x.shape.rank == 4 else planes[..., 0]
    return inner(trainable, non_trainable, x, training, seed)

  return dataclasses.replace(
    encoder,
    example_spec=tf.TensorSpec([stored_side, stored_side, *rest[1:]], encoder.example_spec.dtype),
    apply=apply,
    copies=None,
  )


def middle(x: tf.Tensor, side: int, seed: tf.Tensor) -> tf.Tensor:
  """Returns the center crops, [B, side, side, C]; `seed` has no effect."""
  start = (x.shape[1] - side) // 2
  return x[:, start : start + side, start : start + side]


def anywhere(x: tf.Tensor, side: int, seed: tf.Tensor) -> tf.Tensor:
  """Returns a square of each image at a uniformly random position.

  `x` is [B, stored, stored, C]. The result is [B, side, side, C] of the same dtype.
  """
  starts = tf.random.stateless_uniform(
    [2, tf.shape(x)[0]], seed, 0, x.shape[1] - side + 1, tf.int32
  )
  rows, columns = tf.unstack(starts[:, :, None] + tf.range(side))
  x = tf.gather(x, rows, axis=1, batch_dims=1)
  return tf.gather(x, columns, axis=2, batch_dims=1)


def scaled(x: tf.Tensor, side: int, seed: tf.Tensor) -> tf.Tensor:
  """Returns a random part of each image, scaled to a square, and mirrored in half of the cases.

  Arguments and result have the same form as in `anywhere`. Pixels are rounded.
  """
  boxes = random_boxes(tf.shape(x)[0], seed)
  parts = tf.image.crop_and_resize(
    tf.cast(x, tf.float32), boxes, tf.range(tf.shape(x)[0]), [side, side]
  )
  return tf.cast(tf.round(parts), x.dtype)


def random_boxes(count: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
  """Returns random boxes float32 [count, 4]: top, left, bottom, right in [0, 1].

  The area is uniform between 8 and 100 %, and log(width / height) is uniform between
  log(3 / 4) and log(4 / 3). The first of ten such boxes that fits in the image is used, or
  the whole image if none fits. The position is uniform. In a mirrored box, left is greater
  than right.
  """
  draws = tf.random.stateless_uniform([2 * _TRIES + 3, count], seed)
  area = _AREA[0] + draws[:_TRIES] * (_AREA[1] - _AREA[0])
  low, high = map(math.log, _ASPECT)
  aspect = tf.exp(low + draws[_TRIES : 2 * _TRIES] * (high - low))
  height, width = tf.sqrt(area / aspect), tf.sqrt(area * aspect)
  fits = (height <= 1.0) & (width <= 1.0)
  first = tf.argmax(tf.cast(fits, tf.int32), axis=0)[:, None]

  def pick(sizes):
    return tf.where(
      tf.reduce_any(fits, axis=0),
      tf.gather(tf.transpose(sizes), first, axis=1, batch_dims=1)[:, 0],
      1.0,
    )

  height, width = pick(height), pick(width)
  top, left, mirror = tf.unstack(draws[2 * _TRIES :])
  top, left = top * (1.0 - height), left * (1.0 - width)
  right = left + width
  is_mirrored = mirror < 0.5
  return tf.stack(
    [top, tf.where(is_mirrored, right, left), top + height, tf.where(is_mirrored, left, right)],
    axis=1,
  )


def rotated(x: tf.Tensor, degrees: float, seed: tf.Tensor) -> tf.Tensor:
  """Rotates each image by a random angle, uniform in [-degrees, degrees].

  The result has the shape and dtype of `x`. The corners are filled by reflection.
  """
  with warnings.catch_warnings():
    warnings.simplefilter('ignore')  # The package warns that it is no longer developed.
    import tensorflow_addons as tfa

  most = math.radians(degrees)
  angles = tf.random.stateless_uniform([tf.shape(x)[0]], seed, -most, most)
  turned = tfa.image.rotate(tf.cast(x, tf.float32), angles, 'bilinear', fill_mode='reflect')
  return tf.ensure_shape(tf.cast(tf.round(turned), x.dtype), x.shape)


_CROPS = {MIDDLE: middle, RANDOM: anywhere, SCALE: scaled}
