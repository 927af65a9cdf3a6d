"""FedProto: class rows are prototypes, the means of embeddings.

Tan, Long, Liu, Zhou, Lu, Jiang, Zhang: "FedProto: Federated Prototype Learning across Heterogeneous
Clients", AAAI 2022, arXiv:2105.00243. A client trains its encoder f on

  L_S + lambda |f(x) - C_y|^2,

where C_y is the global prototype of the example's class. The client then sends its own prototypes:
for each class j, the mean embedding of its D_kj examples. The server's new prototype of class j is
the mean over the clients k that have this class, weighted by D_kj / N_j. The model predicts the
class with the nearest prototype.

In the paper, clients share only prototypes. Each client has its own encoder and classifier, and L_S
is the classifier's cross entropy. Here all clients share one model, and the prototypes are its
head. The server also averages encoders, as FedAvg does. L_S is the cross entropy of -|f(x) - C_c|^2
over the client's classes (as in Snell, Swersky, Zemel: "Prototypical Networks for Few-shot
Learning", NeurIPS 2017, arXiv:1703.05175). With cosine logits of scale s, f(x) and C_c are
normalised first, and L_S is the cross entropy of s cos(f(x), C_c).

The paper's second term compares the client's prototypes with the global prototypes, summed over the
client's classes. The authors' code compares single embeddings, as here, but takes the mean over
coordinates in place of the squared distance. The paper's mean of prototypes has an additional
factor of one over the number of clients. The authors' code takes the unweighted mean.
"""

import dataclasses
from typing import Any

from tff_xc.algorithms import base
from tff_xc.lazy import tf, tff
from tff_xc.options import hyperparameters as hp
from tff_xc.round import parts


@hp.declared
class FedProto(base.Server, base.Federated):
  """FedAvg of the encoder. The head consists of prototypes.

  A client receives the prototypes of its own classes.

  A class has no prototype before a client has sent one. Until then, its examples have zero loss,
  and the model never predicts the class. In the first round, clients therefore only send their
  mean embeddings. A class without examples in a round keeps its prototype. The server's optimizer
  updates only the encoder.
  """

  name = 'fedproto'
  paper = 'Tan 2022'
  needs = (base.ONE_LABEL,)
  answers = base.Answers(
    'own classes',
    'softmax of own distances, own distance',
    'mean embedding of the examples',
    'optimizer step on the encoder',
  )
  server_momentum: float = hp.own(0.0)
  prototype_weight: float = hp.field(
    1.0,
    'lambda, the weight of the squared distance between an embedding and the prototype of its'
    ' class',
    least=0,
  )

  def make(self, model, facts):
    from tff_xc import classifier, heads
    from tff_xc.round import algorithm, losses, tables

    head = heads.PrototypeHead()
    if isinstance(model.head, heads.CosineHead):
      head = heads.PrototypeHead(model.head.scale, unit=True)
    model = dataclasses.replace(model, head=head)
    requested = base.own_and_sampled(model, facts)
    softmax = losses.HeldSoftmax(model.num_rows, denominator='positives')
    return algorithm.Algorithm(
      model,
      (tables.Table(classifier.CLASS, requested, _means()),),
      _NearPrototypes(head, softmax, self.prototype_weight),
      local_training=self.local_training(),
    )

  def finish(self, made, facts):
    made = super().finish(made, facts)
    return dataclasses.replace(made, parts=(_Prototypes(made.model.head), *made.parts))

  def warnings(self, num_classes, max_positives):
    found = super().warnings(num_classes, max_positives)
    if max_positives > 1:
      return found
    return [
      *found,
      'no client has more than one class, and in fedproto nothing else pushes classes'
      ' apart: all embeddings become alike',
    ]


@dataclasses.dataclass(frozen=True)
class _NearPrototypes:
  """FedProto's loss, which is 0 for a class without prototype and does not train prototypes."""

  head: Any
  softmax: Any
  weight: float

  trains_rows = False

  def __call__(self, step):
    rows = step.initial_weights.class_table
    logits = self.head.logits(step.embeddings, rows, None)
    own = tf.gather(rows, step.targets)
    embeddings, prototypes = map(self.head.compared, (step.embeddings, own[:, :-1]))
    far = tf.reduce_sum(tf.square(embeddings - prototypes), axis=1)
    each = self.softmax(step._replace(logits=logits)) + self.weight * far
    return tf.where(own[:, -1] > 0, each, 0.0)


@dataclasses.dataclass(frozen=True)
class _Prototypes(parts.Part):
  """Replaces the class rows that a client sends by mean embeddings and numbers of examples."""

  head: Any

  name = 'fedproto'

  def on_client(self, local):
    from tff_xc import classifier

    sums, numbers = local.embedded(self.head.compared)
    means = tf.math.divide_no_nan(sums, numbers[:, None])
    rows = tf.concat([means, numbers[:, None]], axis=1)
    encoder, changes = local.change
    moved = {classifier.CLASS: rows - local.before.class_table}
    return parts.Answer(change=(encoder, classifier.replaced(changes, moved)))


def _means():
  """Returns the merge that averages prototypes, weighted by numbers of examples."""
  from tff_xc.round import folding, merge

  @tff.tensorflow.computation
  def message(held, rows, weight):
    numbers = rows[:, -1:]
    some = tf.logical_and(held.mask, numbers[:, 0] > 0)
    sums = tf.concat([rows[:, :-1] * numbers, numbers], axis=1)
    counts = tf.cast(weight > 0, tf.float32)
    return folding.row_update(held._replace(mask=some), sums, counts)

  class Means(merge.ReplaceRows):
    """Sets a row to the mean embedding of its class, followed by 1.

    The coordinate 1 means that the class has a prototype.
    """

    def build(self, num_rows, row_dim, selects):
      fold = folding.build(row_dim)
      return lambda held, rows, update: fold(
        tff.federated_map(message, (held, rows, update.weight))
      )

    def mean(self, sums, total_weight):
      numbers = sums.rows[:, -1:]
      means = sums.rows[:, :-1] / numbers
      return tf.concat([means, tf.ones_like(numbers)], axis=1)

  return Means()


build_fedproto = base.builder(FedProto)
