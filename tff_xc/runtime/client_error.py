"""Errors of client computations and of workers."""

import tensorflow as tf

from tff_xc import errors


class WorkersError(errors.InputError):
  """The workers of a cluster cannot continue a round. The server's state is intact."""


class ChangedError(errors.InputError):
  """The data that a worker reads have changed, so the last rounds may be wrong."""


class ClientError(RuntimeError):
  """The computation of a client failed. The message names the client and the reason.

  The failed client has an index from `client_index` to `last_index` in the cohort. The
  two indices are equal if the failed client is known exactly. `cancelled` is true if another
  client's error stopped this computation.
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
  """Returns a phrase such as 'client 3'. `first` and `last` are indices or ids of clients."""
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
