"""Errors of client computations and of workers."""

import tensorflow as tf

from tff_xc import errors


class WorkersError(errors.InputError):
  """A cluster's workers cannot continue a round; the server's state is intact."""


class ChangedError(errors.InputError):
  """The data that a worker reads have changed, so the last rounds may be wrong."""


class ClientError(RuntimeError):
  """A client's computation failed; the message names the client and the reason.

  The index of the failed client in the cohort is `client_index`, or any index from
  `client_index` to `last_index`. `cancelled` is true if another client's error stopped this
  computation.
  """

  def __init__(
    self, client_index: int, num_clients: int, cause: Exception, last_index: int | None = None
  ):
    self.reason = _reason(cause)
    self.client_index = client_index
    self.last_index = client_index if last_index is None else last_index
    super().__init__(
      f'{which(client_index, self.last_index)} (from 0) of the {num_clients} in'
      f' the cohort failed: {self.reason}'
    )
    self.cancelled = isinstance(cause, tf.errors.CancelledError)


def which(first, last) -> str:
  """Returns a phrase for one client from `first` to `last`, which are indices or ids."""
  if first == last:
    return f'client {first!r}'
  return f'one of the clients {first!r} to {last!r}'


def _reason(error: Exception) -> str:
  """Returns an error's message without TensorFlow's stack trace."""
  message = str(error)
  if not isinstance(error, tf.errors.OpError):
    return message
  frames = ('File "', 'Detected at node', 'Graph execution error', '[[{{node')
  lines = [line.strip() for line in message.splitlines()]
  told = [x for x in lines if x and not x.startswith(frames)]
  return ' '.join(told) or message
