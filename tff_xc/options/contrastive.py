"""MOON's contrastive term, as an option of every algorithm with clients.

Li, He, Song: "Model-Contrastive Federated Learning", CVPR 2021, arXiv:2103.16257.
"""

from __future__ import annotations

import collections
import dataclasses
from typing import TYPE_CHECKING

from tff_xc import errors
from tff_xc.lazy import tf
from tff_xc.options import hyperparameters as hp, option
from tff_xc.round import parts

if TYPE_CHECKING:
  from tff_xc import classifier
  from tff_xc.round import losses


@hp.declared
class MoonTerm(option.Option):
  """Adds MOON's term to the loss.

  Each client keeps its last model, except class rows and frozen weights.
  """

  contrastive_weight: float = hp.field(
    0.0,
    "mu, the weight of MOON's contrastive term. If it is not 0, each client keeps its last model."
    ' With sparse text, each client then also receives all feature rows',
    least=0,
  )
  contrastive_temperature: float = hp.field(
    0.5, "temperature of MOON's contrastive term", above=0, of='contrastive_weight', not_with=(0.0,)
  )

  def added(self, algorithm, facts):
    if not self.contrastive_weight:
      return algorithm
    if algorithm.client_state is not None:
      raise errors.InputError(
        '--contrastive_weight does not go with an algorithm whose clients keep'
        ' another state already; leave it out'
      )
    _, *others = algorithm.tables
    selected = [table.name for table in others if table.request.selects]
    if selected:
      raise ValueError(
        f"MOON needs clients' whole previous models, and they hold only some rows"
        f' of the table {selected[0]!r}'
      )
    model = algorithm.model
    return dataclasses.replace(
      algorithm,
      loss=Contrastive(
        algorithm.loss, model, self.contrastive_weight, self.contrastive_temperature
      ),
      parts=(
        *algorithm.parts,
        LastModel(_kept(model.weight_specs(), algorithm.frozen), algorithm.frozen),
      ),
    )


@dataclasses.dataclass(frozen=True)
class Contrastive:
  """A loss plus weight (mu) * l_con (eq. 3).

  l_con = -log(e^(s_G / tau) / (e^(s_G / tau) + e^(s_P / tau))). s_G is the cosine between an
  example's embedding and its embedding by the received global model. s_P is the cosine between the
  example's embedding and its embedding by the client's own previous model. The paper's projections
  are the embeddings here. The global and the previous model run in inference mode and get no
  gradient.

  In a client's first round, l_con is zero, because the client has no previous model. (The paper's
  code starts with an initial model for each client.)
  """

  loss: losses.Loss
  model: classifier.EmbeddingClassifier
  weight: float
  temperature: float

  def __call__(self, step: losses.LocalStep) -> tf.Tensor:
    each = self.loss(step)
    # If there is no previous model, two of the three forward passes are left out.
    contrast = tf.cond(step.state.known, lambda: self._contrast(step), lambda: tf.zeros_like(each))
    return each + self.weight * contrast

  def _contrast(self, step):
    """Returns float32 [B], l_con."""
    # Weights that the client did not train have the server's values.
    previous = type(step.initial_weights)(
      *(
        collections.OrderedDict({**received, **step.state.value[name]})
        for name, received in step.initial_weights._asdict().items()
      )
    )
    now = _unit(step.embeddings)
    to_received, to_previous = (
      tf.reduce_sum(now * _unit(self._embedded(weights, step)), axis=1)
      for weights in (step.initial_weights, previous)
    )
    return tf.nn.softplus((to_previous - to_received) / self.temperature)

  def _embedded(self, weights, step):
    embedded, _ = self.model.encode(weights, step.x, False, step.seed)
    return tf.stop_gradient(embedded)


def _unit(embeddings):
  from tff_xc.encoders import layers

  flat = tf.reshape(embeddings, [tf.shape(embeddings)[0], -1])
  return layers.unit_norm(flat)


@dataclasses.dataclass(frozen=True)
class LastModel(parts.Part):
  """The part of a round in which a client stores its trained weights, except class rows."""

  spec: collections.OrderedDict
  frozen: frozenset[str] = frozenset()

  name = 'moon'

  def on_client(self, local):
    return parts.Answer(_kept(local.after, self.frozen))


def _kept(weights, frozen: frozenset[str]) -> collections.OrderedDict:
  from tff_xc import classifier

  left_out = {*frozen, classifier.CLASS}
  return collections.OrderedDict(
    (
      part,
      collections.OrderedDict(
        (name, value) for name, value in named.items() if name not in left_out
      ),
    )
    for part, named in weights._asdict().items()
  )
