"""The metrics of a round: sums over its clients, and what server steps measure."""

import collections

import tensorflow as tf
import tensorflow_federated as tff

# The metrics of every round, besides those of tables and steps.
NAMES = (
  *('loss', 'accuracy', 'examples', 'clients', 'clients_dropped'),
  'local_batches',
)


def of_round(update, of_steps):
  """Returns the metrics@SERVER of a round, float32 scalars by name.

  Call it within a federated computation.

  loss: mean over examples of the objective during local training.
  accuracy: fraction of examples of which a target had the largest logit among
    the held rows, in the step that trained on them.
  class_rows, class_rows_largest: mean and largest number of rows that a client
    requested; likewise for every other table.
  examples, clients, clients_dropped: counts. Clients without examples are left
    out; the update of a dropped client was not finite.
  local_batches: minibatches of the client that took the most.

  A mean or maximum over no clients is nan.

  Args:
    update: `ClientUpdate`@CLIENTS.
    of_steps: the server steps' metrics@SERVER, by name.
  """
  return tff.federated_map(
    _measured,
    (
      tff.federated_sum(update.measured),
      tff.federated_max(update.measured),
      of_steps,
    ),
  )


@tff.tensorflow.computation
def _measured(sums, largest, of_steps):
  measured = collections.OrderedDict(
    loss=sums['loss'] / sums['examples'],
    accuracy=sums['correct'] / sums['examples'],
  )
  for name in sums:
    if name.endswith('_rows'):
      measured[name] = sums[name] / sums['clients']
      measured[f'{name}_largest'] = tf.where(
        sums['clients'] > 0, largest[name], float('nan')
      )
  for name, of in zip(
    NAMES[2:5], ('examples', 'clients', 'dropped'), strict=True
  ):
    measured[name] = sums[of]
  measured['local_batches'] = tf.where(
    sums['clients'] > 0, largest['batches'], 0.0
  )
  measured.update(of_steps)
  return measured
