"""Question 3 for the encoder: how are the clients' deltas averaged?"""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_xc import classifier

_SUMS = (tff.aggregators.SumFactory, tff.aggregators.SecureSumFactory)
# A field in the state of `tff.aggregators.DifferentiallyPrivateFactory`, which all
# of TFF's that add noise have in them.
_DP = 'dp_event='


@tff.tensorflow.computation(np.float32)
def _counts(weight):
  return tf.cast(weight > 0, tf.float32)


class EncoderMean:
  """Averages the encoder's deltas by a `tff.aggregators` factory of means.

  An unweighted factory averages over all clients, including the zeros of those
  that have no examples or whose update was dropped. Its result is therefore
  scaled by (clients / clients of positive weight).
  """

  def __init__(
    self, factory, specs: classifier.ModelWeights, rows: Sequence[str] = ()
  ):
    """Describes the aggregation.

    Args:
      factory: gives a mean; None: the weighted mean.
      specs: of the model's weights that are trained.
      rows: names of the tables whose rows clients send beside the encoder.

    Raises:
      ValueError: for a factory of sums (one that is nested in another factory
        is not found), or a differentially private one of TFF's beside `rows`.
    """
    if factory is None:
      factory = tff.aggregators.MeanFactory(no_nan_division=True)
    if isinstance(factory, _SUMS):
      raise ValueError(
        f'{type(factory).__name__} gives a sum of the deltas, and the server'
        ' needs a mean: give a factory of means, such as UnweightedMeanFactory'
      )
    value_type = tff.types.tensorflow_to_type(
      classifier.union(specs.encoder, specs.encoder_state)
    )
    self._weighted = isinstance(
      factory, tff.aggregators.WeightedAggregationFactory
    )
    extra = [tff.TensorType(np.float32)] if self._weighted else []
    self._process = factory.create(value_type, *extra)
    if rows and _DP in str(self._process.initialize.type_signature):
      raise ValueError(
        'model_aggregator is differentially private, and would add noise to the'
        f' encoder alone: clients also send rows of {", ".join(rows)}, which say'
        ' what the noise is to hide. Give an aggregator without noise, or an'
        ' algorithm that sends no rows'
      )

    @tff.tensorflow.computation(value_type, np.float32, np.float32)
    def over_those_who_count(mean, clients, counted):
      scale = tf.math.divide_no_nan(clients, counted)
      return tf.nest.map_structure(
        lambda t: tf.math.multiply_no_nan(t, scale), mean
      )

    self._over_those_who_count = over_those_who_count

  @property
  def initialize(self):
    return self._process.initialize

  def __call__(self, state, update):
    """Returns the aggregator's output for `ClientUpdate`s@CLIENTS."""
    delta, weight = update.encoder_delta, update.weight
    if self._weighted:
      return self._process.next(state, delta, weight)
    output = self._process.next(state, delta)
    counts = tff.federated_map(_counts, weight)
    everybody = tff.federated_value(1.0, tff.CLIENTS)
    result = tff.federated_map(
      self._over_those_who_count,
      (output.result, tff.federated_sum(everybody), tff.federated_sum(counts)),
    )
    return tff.templates.MeasuredProcessOutput(
      output.state, result, output.measurements
    )
