"""Small computations on numbers of clients."""

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

FLOATS = tff.FederatedType(np.float32, tff.CLIENTS)


def invoke(runtime, computation, *arguments):
  """Returns the result of a computation in a runtime."""
  with tff.framework.get_context_stack().install(runtime):
    return computation(*arguments)


def total_of(computation):
  """Returns a computation that sums the results of `computation` on the clients' numbers."""
  return tff.federated_computation(
    lambda x: tff.federated_sum(tff.federated_map(computation, x)), FLOATS
  )


total = tff.federated_computation(tff.federated_sum, FLOATS)


@tff.tensorflow.computation(np.float32)
def positive(x):
  """Returns x if it is positive, and fails otherwise."""
  with tf.control_dependencies([tf.debugging.Assert(x > 0, ['not positive', x])]):
    return tf.identity(x)
