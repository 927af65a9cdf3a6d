"""Parts of a round: steps that algorithms and options add to training and averaging.

An algorithm has a list of `parts`. The server sends the state of each part to all clients. In a
round, each part can then do the following, in order:

  1. `own_model`, `examples`: change a client's model and examples before it trains;
  2. `on_client`: change a client's update, send a reply to the server, and keep a client state. For
     example, FedNova divides the update, SCAFFOLD replies with the change of a control variate, and
     simulated attackers multiply their updates;
  3. `sent`: change a finite update as it leaves the client, by bounds, compression or noise;
  4. `on_server`: compute the server's next state from the sum of the replies, and change the merged
     updates.

Importing this module does not import TensorFlow.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
  import tensorflow as tf

  from tff_xc import classifier


class Local(NamedTuple):
  """The data of a client after local training, which the hooks of a `Part` receive."""

  received: Any  # The part's state on the server, or the received numbers of `Part.beside`.
  kept: Any  # The client's `examples.KeptState`, if the algorithm has client states.
  # `ModelWeights` before and after local training, with only the received rows of each table. If
  # there are `head_epochs`, `before` is the client's model after them.
  before: classifier.ModelWeights
  after: classifier.ModelWeights
  # The update that the client is about to send: (changes of the encoder by name, including batch
  # statistics; changes of the received rows by table).
  change: tuple[Mapping[str, tf.Tensor], Mapping[str, tf.Tensor]]
  weight: tf.Tensor  # float32 scalar, the client's weight in means; 0 without examples.
  steps: tf.Tensor  # float32 scalar, the number of minibatches taken.
  # Returns the gradients of the mean loss over the client's examples at `before`: (encoder
  # gradients by name, gradients of received rows by table). Penalties and frozen weights are left
  # out.
  gradients: Callable[[], tuple]
  rate: float | tf.Tensor  # The client's learning rate in this round.
  # Takes a function of embeddings [B, d]. Adds up the function's values over the client's examples
  # of each of the N received classes. Returns (these sums float32 [N, d], numbers of examples
  # float32 [N]). The embeddings are those of the weights `after`, in inference mode. Each example
  # must have one label.
  embedded: Callable[[Callable], tuple] | None = None
  held: Mapping[str, Any] = {}  # `request.SelectedRows` by table.
  of_server: Mapping[str, tf.Tensor] = {}  # The server's values of received rows, by table.
  client_id: Any = ()  # int64 scalar.
  round_seed: Any = ()  # int32 [5].


class Answer(NamedTuple):
  """The result of a part's hook on a client."""

  kept: Any = ()  # The client's new state, with the structure of `Part.spec`.
  # Float tensors for the server, which become zeros if the client's update is dropped.
  reply: Any = ()
  change: Any = None  # Replaces `Local.change`. None: `Local.change` stays the same.
  # By table, the rows to which a client adds its changes, if it sends new rows instead of changes.
  # None: the rows of `Local.before`.
  onto: Any = None
  is_finite: Any = None  # bool scalar, only of `sent`: False drops the client's update.


class Round(NamedTuple):
  """Sums over the clients of a round, float32 scalars."""

  clients: tf.Tensor  # The number of clients.
  counted: tf.Tensor  # The number of clients whose updates are used.
  weight: tf.Tensor  # The sum of the clients' weights in means.


class Told(NamedTuple):
  """The numbers that a client sends besides its update, or the sums of these numbers."""

  of_round: Round
  replies: collections.OrderedDict  # `Answer.reply` by part.


class Merged(NamedTuple):
  """The merged updates of a round, before the server's optimizers apply them."""

  encoder: Mapping[str, tf.Tensor]  # Mean changes by name, including batch statistics.
  tables: Mapping[str, Any]  # Merged rows by table, as the table's merge returns them.
  weight: tf.Tensor  # float32 scalar, the divisor of sums of rows.
  clients: tf.Tensor  # float32 scalar, the number of clients whose updates are averaged.
  weights: classifier.ModelWeights  # The server's weights before the round.
  seed: tf.Tensor  # int32 [5], the round's seed.


class Next(NamedTuple):
  """The result of a part's hook on the server."""

  state: Any = ()  # The part's next state.
  merged: Merged | None = None  # Replaces the merged updates. None: they stay the same.
  metrics: Mapping[str, tf.Tensor] = {}  # float32 scalars by the names in `Part.metrics`.


class Part:
  """A part of a round. Subclasses override the hooks that they need.

  Attributes:
    name: the part's name, unique in an algorithm.
    spec: `tf.TensorSpec`s of the state that a client keeps between rounds, or None. Only one part
      of an algorithm may have a client state.
    reply_spec: `tf.TensorSpec`s of the reply, which determine the reply's size in bytes. Scalars
      may be missing, because their bytes are not counted.
    metrics: names of the part's metrics in a round, which are columns of metrics.csv.
    beside: float32 [n], or None. A client receives one of these numbers with each class row, in
      place of the part's state.
    always_counts: whether a client counts in means even if its update is dropped.
    size: a function from the length of a vector in an update to its size in bytes. None: 4 bytes
      per number.
    both_ways: whether `size` also holds for the messages that clients receive.
  """

  name = ''
  spec = None
  reply_spec = ()
  metrics = ()
  beside = None
  always_counts = False
  size = None
  both_ways = False

  def of_run(self, algorithm, pair):
    """Returns the algorithm prepared for a run with the seed `pair`, int32 [2]."""
    return algorithm

  def initial(self) -> Any:
    """Returns the server's state before the first round: tensors, or ()."""
    return ()

  def received(self, algorithm, weights):
    """Returns the `ModelWeights` as they arrive at a client."""
    return weights

  def own_model(self, weights, kept):
    """Returns the `ModelWeights` from which a client starts training.

    `weights` are the received weights, and `kept` is the client's `examples.KeptState`.
    """
    return weights

  def examples(self, examples, held, received):
    """Returns the examples on which a client trains.

    A label is the index of a class row among the received class rows, `held`. `received` is that
    of `Local`.
    """
    return examples

  def on_client(self, local: Local) -> Answer:
    """Returns a client's answer after its local training."""
    return Answer()

  def sent(self, local: Local) -> Answer:
    """Returns a client's answer, which may change the update as it leaves the client.

    If the update was not finite, zeros have replaced it. If a part also has `on_client`, this
    answer's `kept` and `reply` replace those of `on_client`.
    """
    return Answer()

  def on_server(self, state, total: Any, of_round: Round, merged: Merged) -> Next:
    """Returns the server's next state, given its state and the sum of the replies."""
    return Next(state)


def has_own_models(algorithm) -> bool:
  """Whether clients keep personal models, or parts of them, between rounds."""
  part = algorithm.client_state
  return part is not None and type(part).own_model is not Part.own_model


def initial(algorithm) -> collections.OrderedDict:
  """Returns the server's states by part."""
  return collections.OrderedDict((part.name, part.initial()) for part in algorithm.parts)


def on_server(algorithm, states: Mapping, told: Told, merged: Merged):
  """Runs `on_server` of all parts; returns (states by part, merged, metrics by name)."""
  after, measured = collections.OrderedDict(), collections.OrderedDict()
  for part in algorithm.parts:
    found = part.on_server(states[part.name], told.replies[part.name], told.of_round, merged)
    after[part.name] = found.state
    measured.update(found.metrics)
    if found.merged is not None:
      merged = found.merged
  return after, merged, measured
