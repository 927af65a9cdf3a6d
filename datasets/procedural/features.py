"""Synthetic features, similar to the output of a pretrained encoder.

An example is the sum of four normal random vectors: the center of its group of similar
classes, the offset of its class, the offset of its client, and noise. If there are no groups
of classes, the first vector is missing. A data set may have any number of classes and
clients. The module assigns classes and examples to clients like `glyphs`.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.special
import tensorflow as tf

from datasets.procedural import glyph_strokes, glyphs
from tff_xc import errors
from tff_xc.data import client_data

# Standard deviations of the centers of groups and of the offsets of classes and clients.
_GROUP, _CLASS, _CLIENT = 0.7, 0.5, 0.3

PRESETS: Mapping[str, Mapping[str, Any]] = {
  'features': {},
  'features-landmarks': glyphs.PRESETS['glyphs-landmarks'],
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(glyphs.Options):
  """The options of a data set of features. The inherited options of images have no effect."""

  name: str = 'features'
  num_features: int = 64  # The number of features D.
  feature_noise: float = 1.0  # The standard deviation of the noise in each feature.

  def __post_init__(self):
    super().__post_init__()
    if not (1 <= self.num_features <= 65_536 and 0 <= self.feature_noise < 1e6):
      raise errors.InputError(
        f'num_features is {self.num_features} and feature_noise {self.feature_noise};'
        f' {self.name} takes 1 to 65,536 features, and noise from 0'
      )

  @property
  def spec(self) -> tf.TensorSpec:
    return tf.TensorSpec([self.num_features], tf.float32)

  def draw(self, class_key, group_key, hand_key, drawing_key) -> np.ndarray:
    """Generates an example for each of B keys, float32 [B, num_features]."""
    x = _CLASS * self._normals(class_key)
    if group_key is not None:
      x += _GROUP * self._normals(group_key)
    x += self.variation * _CLIENT * self._normals(hand_key)
    x += self.feature_noise * self._normals(drawing_key)
    return x.astype(np.float32)

  def _normals(self, key: np.ndarray) -> np.ndarray:
    """Generates standard normal numbers from each key, float64 [B, num_features]."""
    uniforms = glyph_strokes.uniforms(key, self.num_features).astype(np.float64)
    return scipy.special.ndtri(uniforms + 2**-25)


def load_preset(name: str, **changes) -> client_data.FederatedDataset:
  """Loads one of `PRESETS`; `changes` override its options."""
  return glyphs.drawn(Options(**{'name': name, **PRESETS[name], **changes}))
