"""A part of a round: what an algorithm or an option adds to training and averaging.

An algorithm has its `parts` in order. In a round, each of them may

  1. send a message of its state on the server to all clients (`message`);
  2. change a client's model and examples before it trains (`own_model`, `examples`);
  3. change a client's update, reply, and keep something (`on_client`); FedNova divides
     changes, SCAFFOLD replies with variates, attackers send multiples;
  4. change a finite update as it leaves the client (`sent`): bounds, compression, noise;
  5. make the server's next state of the sum of the replies, and change what was merged
     (`on_server`).

Importing this does not import TensorFlow.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
  import tensorflow as tf

  from tff_xc import classifier


class Local(NamedTuple):
  """A client after local training, as a `Part` sees it."""

  received: Any  # The message, see `Part.message`.
  kept: Any  # `examples.KeptState`, if clients keep a state between rounds.
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
  held: Mapping[str, Any] = {}  # `request.SelectedRows` by table.
  of_server: Mapping[str, tf.Tensor] = {}  # Rows held, by table, as the server has them.
  client_id: Any = ()  # int64 scalar.
  round_seed: Any = ()  # int32 [5].


class Answer(NamedTuple):
  """What a client answers."""

  kept: Any = ()  # As `Part.spec`.
  reply: Any = ()  # Float tensors; zeros if the client's update is dropped.
  change: Any = None  # In place of `Local.change`; None: that as it is.
  # Rows by table to which the server adds the change; None: those of `Local.before`.
  onto: Any = None
  is_finite: Any = None  # bool scalar; False drops the client's update.


class Round(NamedTuple):
  """Sums over the clients of a round, float32 scalars."""

  clients: tf.Tensor  # All of them.
  counted: tf.Tensor  # Those whose update is used.
  weight: tf.Tensor  # Their weights in means.


class Told(NamedTuple):
  """What a client tells, or the sum over clients."""

  of_round: Round
  replies: collections.OrderedDict  # By part.


class Merged(NamedTuple):
  """The merged updates of a round, before the server's optimizers apply them."""

  encoder: Mapping[str, tf.Tensor]  # By name, mean changes; batch statistics included.
  tables: Mapping[str, Any]  # By table, as its merge joins rows.
  weight: tf.Tensor  # float32 scalar, over which rows are averaged.
  clients: tf.Tensor  # float32 scalar, whose updates the mean has.
  weights: classifier.ModelWeights  # Of the server, before the round.
  seed: tf.Tensor  # int32 [5], the round's.


class Next(NamedTuple):
  """What the server makes of the replies."""

  state: Any = ()
  merged: Merged | None = None  # None: as it was.
  metrics: Mapping[str, tf.Tensor] = {}  # float32 scalars, by `Part.metrics`.


class Part:
  """A part of a round; override what it needs.

  Attributes:
    name: of the part, different for all parts of an algorithm.
    spec: `tf.TensorSpec`s of what a client keeps between rounds, or None. Of an
      algorithm's parts one may keep something.
    reply_spec: `tf.TensorSpec`s of the reply, to count its bytes; scalars are not
      counted, nor need they be named.
    metrics: names of the numbers of a round; columns of metrics.csv.
    beside: float32 [n], a number that a client receives with each class row as the
      part's message; or None.
    always_counts: whether a client counts in means even where its update is dropped.
    size: a function from the numbers of a vector of an update to its bytes; None: as float32.
    both_ways: whether what clients receive has this size, too.
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
    """Returns the algorithm in a run whose seed is `pair`, int32 [2], before any round."""
    del pair
    return algorithm

  def initial(self) -> Any:
    """Returns the server's state before the first round: tensors, or ()."""
    return ()

  def message(self, state) -> Any:
    """Returns what all clients of a round receive of the server's state."""
    return state

  def received(self, algorithm, weights):
    """Returns the `ModelWeights` that arrive at a client."""
    del algorithm
    return weights

  def own_model(self, weights, kept):
    """Returns the `ModelWeights` from which a client trains, and which are its own.

    `weights` are those received, and `kept` is its `examples.KeptState`.
    """
    del kept
    return weights

  def examples(self, examples, held, received):
    """Returns the examples, with slots as labels, that a client trains on.

    `held` are the class rows held, and `received` is the message.
    """
    del held, received
    return examples

  def on_client(self, local: Local) -> Answer:
    """Returns a client's answer, after its local training."""
    del local
    return Answer()

  def sent(self, local: Local) -> Answer:
    """Returns a client's answer with its update, which is finite, as it leaves."""
    del local
    return Answer()

  def on_server(self, state, total: Any, of_round: Round, merged: Merged) -> Next:
    """Returns what the server makes of its state and the sum of the replies."""
    del total, of_round, merged
    return Next(state)


def has_own_models(algorithm) -> bool:
  """Whether what clients keep is a part of a model of their own."""
  part = algorithm.client_state
  return part is not None and type(part).own_model is not Part.own_model


def initial(algorithm) -> collections.OrderedDict:
  """Returns the server's states by part."""
  return collections.OrderedDict((part.name, part.initial()) for part in algorithm.parts)


def messages(algorithm, states: Mapping | None = None):
  """Returns what clients receive by part; None: in the first round."""
  states = initial(algorithm) if states is None else states
  return collections.OrderedDict(
    (part.name, part.message(states[part.name])) for part in algorithm.parts
  )


def on_server(algorithm, states: Mapping, told: Told, merged: Merged):
  """Returns (states by part, what is merged, metrics by name)."""
  after, measured = collections.OrderedDict(), collections.OrderedDict()
  for part in algorithm.parts:
    found = part.on_server(states[part.name], told.replies[part.name], told.of_round, merged)
    after[part.name] = found.state
    measured.update(found.metrics)
    if found.merged is not None:
      merged = found.merged
  return after, merged, measured
