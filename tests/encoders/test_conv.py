"""The small convolutional encoder."""

import numpy as np
import pytest
import tensorflow as tf

from tff_xc.encoders import conv

RANDOM = np.random.default_rng(0)


@pytest.mark.parametrize('image_size', [8, 28, 32])
def test_the_embedding_has_the_dimension_asked_for(image_size):
  encoder = conv.build_conv_encoder(image_size=image_size, embedding_dim=7)
  weights = encoder.init(tf.constant([0, 1]))
  x = RANDOM.integers(0, 256, size=(3, image_size, image_size), dtype=np.uint8)
  embeddings, state = encoder.apply(
    weights, {}, tf.constant(x), training=True, seed=tf.constant([0, 0])
  )
  assert embeddings.shape == [3, 7]
  assert np.isfinite(embeddings).all()
  assert state == {}


def test_channels_are_the_last_axis():
  grey, colour = (
    conv.build_conv_encoder(image_size=8, channels=c) for c in (None, 3)
  )
  assert grey.example_spec.shape == [8, 8]
  assert colour.example_spec.shape == [8, 8, 3]
  weights = colour.init(tf.constant([0, 1]))
  x = RANDOM.integers(0, 256, size=(2, 8, 8, 3), dtype=np.uint8)
  embeddings, _ = colour.apply(weights, {}, x, training=False, seed=None)
  assert embeddings.shape == [2, 64]
