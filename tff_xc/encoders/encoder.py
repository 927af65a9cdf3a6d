"""What an encoder is: named weights and a pure function of them.

Weights are ordered dictionaries from a unique name to a tensor, so that a
weight can neither be lost nor trained twice (a federated learner that keys
variables by a name that repeats trains only the last of them).
"""

import collections
import dataclasses
from collections.abc import Callable
from collections.abc import Mapping

import tensorflow as tf

Weights = Mapping[str, tf.Tensor]


@dataclasses.dataclass(frozen=True)
class Encoder:
  """An encoder g(x; phi) in functional form.

  Attributes:
    example_spec: spec of one stored example, without the batch dimension.
    embedding_dim: d, the length of an embedding.
    init: `seed` int32 [2] -> trainable weights, by name.
    apply: (trainable, non_trainable, x [B, ...], training, seed int32 [2]) ->
      (embeddings float32 [B, d], updated non_trainable).
    init_non_trainable: `seed` -> weights that no gradient moves, such as
      batch statistics. They are averaged over clients like the others.
  """

  example_spec: tf.TensorSpec
  embedding_dim: int
  init: Callable[[tf.Tensor], Weights]
  apply: Callable[..., tuple[tf.Tensor, Weights]]
  init_non_trainable: Callable[[tf.Tensor], Weights] = lambda seed: (
    collections.OrderedDict()
  )
