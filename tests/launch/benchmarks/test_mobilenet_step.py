"""The floor of the benchmark `mobilenet`."""

import math

import pytest
import tensorflow as tf

from launch.benchmarks import keras_mobilenet
from launch.benchmarks import mobilenet_step

_LAYERS = (
  tf.keras.layers.Conv2D,
  tf.keras.layers.DepthwiseConv2D,
  tf.keras.layers.Dense,
)


def counted(model):
  """Returns the multiply-adds of an image: each weight at each place once."""
  total = 0
  for layer in model.layers:
    if isinstance(layer, _LAYERS):
      places = math.prod(layer.output_shape[1:-1])
      total += places * math.prod(layer.weights[0].shape)
  return total


def test_the_floor_has_the_multiply_adds_of_the_network():
  settings = mobilenet_step.Settings()
  model = keras_mobilenet.embedding_model(settings.image_size, 64, True)
  images = settings.batch_size * settings.steps
  # The forward pass, the weights' gradients, and those of the layers' inputs.
  expected = 3 * images * counted(model)
  found = mobilenet_step.multiply_adds(settings)
  assert found == pytest.approx(expected, rel=0.02)


def test_the_floor_multiplies_as_often_as_that_takes(monkeypatch):
  settings = mobilenet_step.Settings()
  floor = mobilenet_step.Products(settings)
  sizes, matmul = [], tf.matmul
  monkeypatch.setattr(
    tf,
    'matmul',
    lambda x, y: sizes.append((*x.shape, *y.shape)) or matmul(x, y),
  )
  floor.run()
  done = sum(math.prod(size[:2]) * size[3] for size in sizes)
  wanted = mobilenet_step.multiply_adds(settings)
  assert wanted <= done < 1.05 * wanted
