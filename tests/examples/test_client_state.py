"""An example of your own algorithm: weighted examples, and clients that keep a state.

Copy the code between the lines of dashes, and its imports. Examples of rare classes have a larger
weight. A client keeps its encoder after local training, and the loss keeps the next encoder near
it.
"""

import collections
import dataclasses

import pytest
import tensorflow as tf

from tests import doubling, small_data
from tff_xc.algorithms import fedss
from tff_xc.experiment import training
from tff_xc.round import cohort, parts

# ---------------------------------------------------------------------------


class RareFirst(parts.Part):
  """Weights an example by 1 / (the client's number of examples of the same class)."""

  name = 'rare_first'

  def examples(self, examples, held, received):
    counts = tf.gather(held.counts, examples.labels)
    return examples._replace(weights=1.0 / tf.cast(counts, tf.float32))


@dataclasses.dataclass(frozen=True)
class LastEncoder(parts.Part):
  """Keeps a client's encoder after local training, and counts the client's rounds."""

  spec: collections.OrderedDict

  name = 'last_encoder'

  def on_client(self, local):
    kept = collections.OrderedDict(
      rounds=local.kept.value['rounds'] + 1, encoder=local.after.encoder
    )
    return parts.Answer(kept)


def near_its_last(step):
  """Returns half the squared distance to the client's last encoder, or 0 if there is none."""
  now, last = (
    tf.concat([tf.reshape(t, [-1]) for t in weights.values()], 0)
    for weights in (step.weights.encoder, step.state.value['encoder'])
  )
  known = tf.cast(step.state.known, tf.float32)
  return 0.5 * known * tf.reduce_sum(tf.square(now - last))


def remembering(model, **arguments):
  spec = collections.OrderedDict(
    rounds=tf.TensorSpec([], tf.int32), encoder=model.weight_specs().encoder
  )
  return dataclasses.replace(
    fedss.FedSS.made(model=model, **arguments),
    penalties=(near_its_last,),
    parts=(LastEncoder(spec), RareFirst()),
    sampling=cohort.UniformClients(3),
  )


# ---------------------------------------------------------------------------


@pytest.fixture(scope='module')
def made():
  dataset, model = small_data.images()
  return remembering(model, max_positives=4, negatives=3), dataset


def train(made, path, rounds, **changes):
  algorithm, dataset = made
  training.train(
    dataclasses.replace(algorithm, **changes),
    dataset,
    path,
    metrics=('top1',),
    rounds=rounds,
    eval_every=2,
  )
  return doubling.rows(path)


@pytest.mark.slow
def test_states_are_kept_over_rounds_and_a_resume(made, in_process, built_once, tmp_path):
  straight = train(made, tmp_path / 'straight', 4)
  train(made, tmp_path / 'resumed', 2)
  assert train(made, tmp_path / 'resumed', 4) == straight
  counts = small_data.kept_by_clients(tmp_path / 'straight').values()
  assert len(counts) > 3
  assert sum(c['rounds'] for c in counts) == 4 * 3  # Three clients train in a round.
