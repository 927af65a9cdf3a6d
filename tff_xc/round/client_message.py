"""What a client sends: its update, within bounds, or nothing where it is not finite."""

import collections
from collections.abc import Mapping
from typing import Any
from typing import NamedTuple

import tensorflow as tf

from tff_xc import classifier
from tff_xc.encoders import encoder as encoder_lib
from tff_xc.round import examples as examples_lib
from tff_xc.round import frozen
from tff_xc.round import robust


class ClientUpdate(NamedTuple):
  """What a client sends to the server.

  Attributes:
    encoder_delta: by name, trained weights after minus before; zeros if the
      update is dropped.
    rows: by table, float32 [N, row_dim], as its merge says; exactly zero on
      padding.
    weight: float32 scalar, the client's weight in means: its number of
      examples, or 1 with 'uniform' weighting; 0 if the client has no examples
      or its update is not finite.
    measured: sums over the client's examples, by name (see
      `tff_xc.round.metrics`); all zero for a client without examples.
    bounded: `robust.Bounded`, if there are bounds.
    state: what it keeps, if the algorithm has client state; not sent.
  """

  encoder_delta: encoder_lib.Weights
  rows: Mapping[str, tf.Tensor]
  weight: tf.Tensor
  measured: collections.OrderedDict
  bounded: Any = ()
  state: Any = ()


def of(
  algorithm, before, after, held, examples, measured, bounds=None
) -> ClientUpdate:
  """Makes an update; one that is not finite is zeros of weight 0, counted.

  Args:
    algorithm: the answers.
    before: `ModelWeights` as received, whose tables have the rows held.
    after: the same after local training.
    held: by table, `SelectedRows`.
    examples: the client's `ClientExamples`.
    measured: by name, what local training measured.
    bounds: by name, for `robust.bounded`; None: none.
  """
  parts = [frozen.trained_part(algorithm, w) for w in (after, before)]
  delta = tf.nest.map_structure(
    tf.subtract,
    *(classifier.union(part.encoder, part.encoder_state) for part in parts),
  )
  rows, used = collections.OrderedDict(), {}
  for table in algorithm.tables:
    name, mask = table.name, held[table.name].mask
    sent = table.merge.sent(before.tables[name], after.tables[name])
    if table.request.selects:  # Otherwise no slot is padding.
      sent = tf.where(mask[: tf.shape(sent)[0], None], sent, 0.0)
    rows[name] = sent
    used[name] = tf.reduce_sum(tf.cast(mask, tf.float32))
  finite = _is_finite([*tf.nest.flatten(delta), *rows.values()])
  of_bounds = ()
  if bounds is not None:
    delta, rows, of_bounds = _bounded(
      algorithm, before.tables, delta, rows, held, bounds
    )
  # Not a product with 0 or 1, which would be one more pass over the numbers.
  delta, rows = tf.cond(
    finite,
    lambda: (delta, rows),
    lambda: tf.nest.map_structure(tf.zeros_like, (delta, rows)),
  )
  # `multiply_no_nan` by zero gives zero even for NaN.
  kept = lambda t: tf.math.multiply_no_nan(t, tf.cast(finite, tf.float32))
  count = tf.cast(encoder_lib.count(examples.y), tf.float32)
  takes_part = tf.minimum(count, 1.0)
  measured = collections.OrderedDict(
    loss=kept(measured['loss']),
    correct=kept(measured['correct']),
    examples=kept(count),
    clients=takes_part,
    dropped=takes_part - kept(takes_part),
    batches=measured['batches'],
    **{f'{name}_rows': k * takes_part for name, k in used.items()},
  )
  return ClientUpdate(
    delta,
    rows,
    kept(takes_part if algorithm.weighting == 'uniform' else count),
    measured,
    tf.nest.map_structure(kept, of_bounds),
    _next_state(algorithm, before, after, examples, finite),
  )


def _bounded(algorithm, before, delta, rows, held, bounds):
  """Returns (delta, rows, `robust.Bounded`), changed no more than the bounds."""
  changes = collections.OrderedDict()
  for table in algorithm.tables:
    name, changes[table.name] = table.name, rows[table.name]
    if not table.merge.sends_deltas:
      moved = rows[name] - before[name]
      # Padding is sent as zeros, and did not change.
      mask = held[name].mask[: tf.shape(moved)[0], None]
      changes[name] = tf.where(mask, moved, 0.0)
  (delta, changes), found = robust.bounded((delta, changes), bounds)
  exceeded = tf.add_n(list(found.exceeded.values())) > 0
  for table in algorithm.tables:
    if not table.merge.sends_deltas:
      name = table.name
      # Whoever is within the bounds sends its rows to the last digit.
      changes[name] = tf.cond(
        exceeded,
        lambda n=name, c=changes[name]: tf.where(
          held[n].mask[: tf.shape(c)[0], None], before[n] + c, 0.0
        ),
        lambda n=name: rows[n],
      )
  return delta, changes, found


def _is_finite(values: list[tf.Tensor]) -> tf.Tensor:
  """Whether all numbers are finite, and their sums in float32 as well.

  A tensor's sum is NaN or infinite if one of its numbers is. It is one pass
  over the numbers, and the test of each of them would be two.
  """
  each = [tf.math.is_finite(tf.reduce_sum(t)) for t in values]
  return tf.reduce_all([tf.constant(True), *each])


def _next_state(algorithm, before, after, examples, finite):
  """Returns what the client keeps.

  It is the old state if the update is dropped or the new state is not finite.
  """
  if algorithm.client_state is None:
    return ()
  new = tf.nest.map_structure(
    lambda tensor, spec: tf.ensure_shape(tensor, spec.shape),
    algorithm.client_state.next(examples.state, before, after),
    algorithm.client_state.spec,
  )
  old = examples.state
  sound = _is_finite([t for t in tf.nest.flatten(new) if t.dtype.is_floating])
  has_examples = encoder_lib.count(examples.y) > 0
  keeps = tf.reduce_all([finite, has_examples, sound])
  # The branches' tensors are not copied, as `tf.where` would.
  kept = tf.cond(keeps, lambda: new, lambda: old.value)
  return examples_lib.KeptState(tf.logical_or(keeps, old.known), kept)
