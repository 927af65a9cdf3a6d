"""Initializes MobileNets with weight files of `tf.keras.applications`.

The kernels are copied. Keras's networks have BatchNorm and ours have GroupNorm, so the
weights of BatchNorm are converted. At test time, BatchNorm maps a channel c to

  gamma_c (x - mu_c) / sqrt(v_c + eps) + beta_c,

where mu and v are the running moments of the training images. GroupNorm instead uses the
moments of one image in a group of channels. Over all training images, a group G has the
moments

  M = mean over c in G of mu_c,   V = mean over c in G of (v_c + mu_c^2) - M^2,

and GroupNorm's weights are

  scale_c = gamma_c sqrt((V + eps) / (v_c + eps)),
  offset_c = beta_c + gamma_c (M - mu_c) / sqrt(v_c + eps).

If all groups of an image have these moments, GroupNorm equals BatchNorm exactly. The
moments of a real image differ, and the differences of 50 layers add up. The encoder is
therefore a starting point for training and does not equal the pretrained network. With larger
groups, the differences are smaller. In a test, Keras's networks were trained for 200 steps on
CIFAR-10 at 64 pixels. The cosine between the encoder's and Keras's features, both centered, was

  V2 0.47, V3 0.46 with 8 groups,
  V2 0.67, V3 0.63 with one group,
  at most 0.24 if gamma and beta were copied unchanged.
"""

import dataclasses
import os
from collections.abc import Iterator, Mapping

import numpy as np
import tensorflow as tf

from tff_xc import errors
from tff_xc.data import hdf5
from tff_xc.encoders import encoder as encoder_lib, mobilenet

DOWNLOAD = 'imagenet'
_APPLICATIONS = {mobilenet.V2: 'MobileNetV2', mobilenet.V3_LARGE: 'MobileNetV3Large'}


def layers_of(network: mobilenet.Network) -> Iterator[tuple[str, str, str | None]]:
  """Yields the names of (our layer, Keras's layer with its kernel, Keras's BatchNorm layer).

  All layers are included, except the bottleneck. The last name is None for a dense layer,
  which has a bias instead of BatchNorm. Keras implements dense layers as 1x1 convolutions.
  """
  v3 = network is mobilenet.V3_LARGE
  yield 'first', *(('Conv', 'Conv/BatchNorm') if v3 else ('Conv1', 'bn_Conv1'))
  end = '/BatchNorm' if v3 else '_BN'
  for i, block in enumerate(network.blocks):
    prefix = 'expanded_conv' if v3 or not i else 'block'
    prefix += (f'_{i}' if i else '') + ('/' if v3 else '_')
    for layer in ('expand', 'depthwise', 'project'):
      if layer != 'expand' or block.expanded != block.inputs:
        yield f'block{i}/{layer}', prefix + layer, prefix + layer + end
    if block.squeezed:
      yield f'block{i}/squeeze', f'{prefix}squeeze_excite/Conv', None
      yield f'block{i}/excite', f'{prefix}squeeze_excite/Conv_1', None
  yield 'last', 'Conv_1', 'Conv_1/BatchNorm' if v3 else 'Conv_1_bn'


def with_weights(
  encoder: encoder_lib.Encoder, network: mobilenet.Network, source: str, groups: int = 8
) -> encoder_lib.Encoder:
  """Returns the encoder with Keras's weights as initial weights.

  A bottleneck keeps its random initial weights. The encoder must come from
  `mobilenet.build` with the same `network` and `groups`. `source` is a .h5 file of
  `tf.keras.applications`, with or without the top layers (`include_top`), or 'imagenet',
  which makes Keras download its file.
  """
  loaded = folded(read(network, source), network, groups)

  def init(seed):
    drawn = encoder.init(seed)
    return type(drawn)(
      (name, tf.constant(loaded[name]) if name in loaded else value)
      for name, value in drawn.items()
    )

  return dataclasses.replace(encoder, init=init)


def read(network: mobilenet.Network, source: str) -> tf.keras.Model:
  """Returns Keras's network with the weights from `source`; see `with_weights`."""
  application = _APPLICATIONS[network]
  build = getattr(tf.keras.applications, application)
  if source == DOWNLOAD:
    try:
      return build(input_shape=(224, 224, 3), include_top=False)
    except Exception as e:  # Keras raises a bare `Exception`.
      raise errors.InputError(
        f'--encoder_weights={source}: Keras could not download them ({_line(e)});'
        ' download this file elsewhere, and give --encoder_weights=FILE'
      ) from e
  if not os.path.isfile(source):
    raise errors.InputError(
      f'--encoder_weights={source} is no file; give a .h5 file of'
      f' tf.keras.applications.{application}, or {DOWNLOAD}'
    )
  hdf5.check_file(source)
  reasons = []
  for top in (False, True):
    model = build(include_top=top, weights=None, input_shape=(224, 224, 3))
    try:
      model.load_weights(source)
    except Exception as e:  # h5py and Keras raise many types.
      reasons.append(_line(e))
    else:
      return model
  raise errors.InputError(
    f'--encoder_weights={source} has not the weights of'
    f' tf.keras.applications.{application} with alpha=1 ({reasons[0]}); give a .h5'
    ' file of that network'
  )


def _line(e: Exception) -> str:
  return (str(e) or type(e).__name__).splitlines()[0][:300].rstrip('.')


def folded(
  model: tf.keras.Model, network: mobilenet.Network, groups: int
) -> Mapping[str, np.ndarray]:
  """Returns Keras's weights by our names, with BatchNorm converted to GroupNorm."""
  weights = {}
  for name, kernel, norm in layers_of(network):
    values = model.get_layer(kernel).get_weights()
    if norm is None:
      weights[f'{name}/kernel'] = values[0][0, 0].T  # [outputs, inputs] as in `layers.dense`.
      weights[f'{name}/bias'] = values[1]
      continue
    weights[f'{name}/kernel'] = values[0]
    layer = model.get_layer(norm)
    weights[f'{name}/scale'], weights[f'{name}/offset'] = group_norm_of(
      *layer.get_weights(), groups, layer.epsilon
    )
  return weights


def group_norm_of(
  gamma: np.ndarray,
  beta: np.ndarray,
  mean: np.ndarray,
  variance: np.ndarray,
  groups: int,
  epsilon: float,
) -> tuple[np.ndarray, np.ndarray]:
  """Returns GroupNorm's scale and offset, float32 [C], from BatchNorm's weights [C]."""
  mean, variance = mean.astype(np.float64), variance.astype(np.float64)

  def over_group(x):
    return np.repeat(x.reshape(groups, -1).mean(1), len(x) // groups)

  of_group = over_group(mean)
  spread = over_group(variance + mean**2) - of_group**2
  gain = gamma / np.sqrt(variance + epsilon)
  scale = gain * np.sqrt(spread + epsilon)
  offset = beta + gain * (of_group - mean)
  return scale.astype(np.float32), offset.astype(np.float32)
