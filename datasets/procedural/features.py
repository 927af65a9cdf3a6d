"""Procedural features, as of a pretrained encoder: any number of classes and clients.

An example is a point of a space: the center of its group of classes, plus the offset of
its class, plus the offset of its client, plus noise, all normal. Without groups of
similar classes there is no first part. Who has which classes is as in `glyphs`, and so
is what is drawn when.
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
  """What a data set of features is like; options of images do not apply."""

  name: str = 'features'
  num_features: int = 64  # D.
  feature_noise: float = 1.0  # Its deviation, of each feature.

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
    """Draws float32 [B, num_features]."""
    x = _CLASS * self._normals(class_key)
    if group_key is not None:
      x += _GROUP * self._normals(group_key)
    x += self.variation * _CLIENT * self._normals(hand_key)
    x += self.feature_noise * self._normals(drawing_key)
    return x.astype(np.float32)

  def _normals(self, key: np.ndarray) -> np.ndarray:
    """Returns float64 [B, num_features], standard normal numbers of each key."""
    uniforms = glyph_strokes.uniforms(key, self.num_features).astype(np.float64)
    return scipy.special.ndtri(uniforms + 2**-25)


def load_preset(name: str, **changes) -> client_data.FederatedDataset:
  """Loads one of `PRESETS`; `changes` override its options."""
  return glyphs.drawn(Options(**{'name': name, **PRESETS[name], **changes}))
