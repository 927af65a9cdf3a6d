"""What a round carries beside the model and the clients' updates: the carried slot.

The server keeps a state and sends a message of it. A client answers after local
training: what it keeps until its next round, a reply, and whether its update is to be
changed before it is sent. Replies are added up, and the server makes its next state
of their sum. Robust bounds, FedDyn's gradients, MOON's models and SCAFFOLD's variates
are such parts. Importing this does not import TensorFlow.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
  import tensorflow as tf

  from tff_xc import classifier


class Local(NamedTuple):
  """A client after local training, as a `Carried` sees it."""

  received: Any  # The message, see `Carried.message`.
  kept: Any  # `examples.KeptState`, of an algorithm whose clients keep something.
  # `ModelWeights` whose tables have the rows held; `before` is the client's own model
  # after any `head_epochs`.
  before: classifier.ModelWeights
  after: classifier.ModelWeights
  # What the client is about to send: changes of the encoder by name, batch statistics
  # included, and of the rows held by table.
  change: tuple[Mapping[str, tf.Tensor], Mapping[str, tf.Tensor]]
  weight: tf.Tensor  # float32 scalar, in means; 0 without examples.
  steps: tf.Tensor  # float32 scalar, minibatches taken.
  # Returns (gradients of the encoder by name, of the rows held by table): of the mean
  # loss, without penalties, over the client's examples at `before`, frozen ones left out.
  gradients: Callable[[], tuple]
  rate: float | tf.Tensor  # The learning rate of the round.
  # From a function of embeddings [B, d] to (its sums float32 [N, d], numbers float32 [N])
  # over the client's examples, of one label each, by class row held. The embeddings
  # are those of `after`, as at test time.
  embedded: Callable[[Callable], tuple] | None = None


class Answer(NamedTuple):
  """What a client answers."""

  kept: Any = ()  # As `Carried.spec`.
  reply: Any = ()  # Float tensors; zeros if the client's update is dropped.
  change: Any = None  # In place of `Local.change`; None: that as it is.


class Round(NamedTuple):
  """Sums over the clients of a round, float32 scalars."""

  clients: tf.Tensor  # All of them.
  counted: tf.Tensor  # Those whose update is used.
  weight: tf.Tensor  # Their weights in means.


class Told(NamedTuple):
  """What a client tells, or the sum over clients."""

  of_round: Round
  replies: collections.OrderedDict  # By part.


class Next(NamedTuple):
  """What the server makes of the replies."""

  state: Any = ()
  factor: Any = None  # Scalar by which mean changes of trained weights are multiplied.
  metrics: Mapping[str, tf.Tensor] = {}  # float32 scalars, by `Carried.metrics`.


class Carried:
  """A part of a round beside the model; override what it needs.

  Attributes:
    name: of the part, different for all parts of an algorithm.
    spec: `tf.TensorSpec`s of what a client keeps between rounds, or None. Of an
      algorithm's parts one may keep something.
    reply_spec: `tf.TensorSpec`s of the reply, to count its bytes; scalars are not
      counted, nor need they be named.
    metrics: names of the numbers of a round; columns of metrics.csv.
  """

  name = ''
  spec = None
  reply_spec = ()
  metrics = ()

  def initial(self) -> Any:
    """Returns the server's state before the first round: tensors, or ()."""
    return ()

  def message(self, state) -> Any:
    """Returns what all clients of a round receive of the server's state."""
    return state

  def own_model(self, weights, kept):
    """Returns the `ModelWeights` from which a client trains, and which are its own.

    `weights` are those received, and `kept` is its `examples.KeptState`.
    """
    del kept
    return weights

  def on_client(self, local: Local) -> Answer:
    """Returns a client's answer, after its local training."""
    del local
    return Answer()

  def on_server(self, state, total: Any, of_round: Round) -> Next:
    """Returns what the server makes of its state and the sum of the replies."""
    del total, of_round
    return Next(state)


def parts(algorithm) -> collections.OrderedDict:
  """Returns the parts of an algorithm by name, its bounds last."""
  bounds = (algorithm.robust,) if algorithm.robust else ()
  return collections.OrderedDict((part.name, part) for part in (*algorithm.carried, *bounds))


def has_own_models(algorithm) -> bool:
  """Whether what clients keep is a part of a model of their own."""
  part = algorithm.client_state
  return part is not None and type(part).own_model is not Carried.own_model


def initial(algorithm) -> collections.OrderedDict:
  """Returns the server's states by part."""
  return collections.OrderedDict((name, part.initial()) for name, part in parts(algorithm).items())


def messages(algorithm, states: Mapping | None = None):
  """Returns what clients receive by part; None: in the first round."""
  states = initial(algorithm) if states is None else states
  return collections.OrderedDict(
    (name, part.message(states[name])) for name, part in parts(algorithm).items()
  )


def on_server(algorithm, states: Mapping, told: Told):
  """Returns (states by part, factor of mean changes or None, metrics by name)."""
  after, measured = collections.OrderedDict(), collections.OrderedDict()
  factor = None
  for name, part in parts(algorithm).items():
    found = part.on_server(states[name], told.replies[name], told.of_round)
    after[name] = found.state
    measured.update(found.metrics)
    if found.factor is not None:
      factor = found.factor if factor is None else factor * found.factor
  return after, factor, measured
