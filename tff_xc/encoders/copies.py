"""Several copies of an encoder, each with weights of its own."""

import collections
import dataclasses

import tensorflow as tf

from tff_xc.encoders import encoder as encoder_lib
from tff_xc.encoders import initializers


def side_by_side(
  encoder: encoder_lib.Encoder, count: int
) -> encoder_lib.Encoder:
  """Returns an encoder of `count` copies; embeddings are float32 [B, count, d].

  An encoder may have a faster form of its own (`Encoder.copies`); otherwise the
  copies compute one after the other. The weights of copy r are named
  'copyR/NAME'. Its tables become part of the encoder, and are sent whole.

  Args:
    encoder: whose embeddings are [B, d].
    count: at least 1.
  """
  if encoder.copies is not None:
    return encoder.copies(count)
  names = [f'copy{r}/' for r in range(count)]

  def drawn(init):
    def of_all(seed):
      return collections.OrderedDict(
        (prefix + name, weight)
        for r, prefix in enumerate(names)
        for name, weight in init(initializers.fold(seed, r)).items()
      )

    return of_all

  def apply(trainable, non_trainable, x, training, seed):
    embeddings, states = [], collections.OrderedDict()
    for r, prefix in enumerate(names):
      own = lambda weights, prefix=prefix: collections.OrderedDict(
        (name.removeprefix(prefix), weight)
        for name, weight in weights.items()
        if name.startswith(prefix)
      )
      embedding, state = encoder.apply(
        own(trainable),
        own(non_trainable),
        x,
        training=training,
        seed=initializers.fold(seed, r),
      )
      embeddings.append(embedding)
      states |= {prefix + name: value for name, value in state.items()}
    return tf.stack(embeddings, axis=1), states

  return dataclasses.replace(
    encoder,
    init=drawn(encoder.init),
    apply=apply,
    init_non_trainable=drawn(encoder.init_non_trainable),
    tables={},
    last_layer=tuple(p + name for p in names for name in encoder.last_layer),
  )
