"""Computations with clients, in the runtime of a test."""

import numpy as np
import tensorflow_federated as tff

FLOATS = tff.FederatedType(np.float32, tff.CLIENTS)


def invoke(runtime, computation, *arguments):
  """Returns what a computation returns in a runtime."""
  with tff.framework.get_context_stack().install(runtime):
    return computation(*arguments)


@tff.federated_computation(FLOATS)
def total(x):
  """Returns the sum of the clients' numbers."""
  return tff.federated_sum(x)
