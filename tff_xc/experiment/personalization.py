"""Trains and scores a personal model for each client, with only a few clients in memory."""

import concurrent.futures
import dataclasses
import functools
import os
from typing import Any

import numpy as np
import tensorflow as tf
import tqdm

from tff_xc import classifier
from tff_xc.data import client_data
from tff_xc.experiment import client_states as client_states_lib
from tff_xc.measure import client_scores, evaluation
from tff_xc.round import algorithm as algorithm_lib, cohort, personal, randomness


@dataclasses.dataclass(frozen=True)
class Personalization:
  """How a client personalizes the global model; see `personal.build`."""

  steps: int
  part: str = personal.ALL
  learning_rate: float | None = None  # None: the run's learning rate.


def scores(
  how: Personalization,
  algorithm: algorithm_lib.Algorithm,
  dataset: client_data.FederatedDataset,
  evaluator: evaluation.Evaluator,
  state: Any,
  weights: classifier.ModelWeights,
  before: np.ndarray,
  threads: int = 0,
  kept: client_states_lib.ClientStates | None = None,
) -> np.ndarray:
  """Returns float64 [K], each client's score after its own local steps.

  The order of clients is the same as in `client_scores.clients`. A client starts from its
  stored personal model. If the client has no stored model, it starts from the global model. The
  client then trains on its training examples, as in the round after `state`. Its score is its
  top-1 accuracy on its held-out examples. The trained model is then discarded. If `how.steps`
  is 0, clients do not train. A client without training examples keeps its score from `before`.

  Args:
    how: the number of steps, the trained part of the model, and the learning rate.
    algorithm: the run's algorithm.
    dataset: the run's data.
    evaluator: an evaluator on `dataset`.
    state: the `RoundState` after the run.
    weights: the global model.
    before: float64 [K], the global model's scores; nan for clients that are not scored.
    threads: the number of clients that train at a time. 0 means one for each core. The
      scores do not depend on this number.
    kept: the stored states of training clients if these states have personal models, else None.
  """
  if not how.steps and kept is None:
    return before
  algorithm = _with_room(algorithm, dataset)
  adapt = how.steps and personal.build(algorithm, how.steps, how.part, how.learning_rate)
  seed = randomness.round_seed(state.seed, state.round_number)
  pool, clients = dataset.train.pool, []
  for part, train, held_out in client_scores.parts(dataset):
    known = kept.kept if kept and part == client_scores.TRAINED else ()
    clients += [(train, held_out, i, i in known) for i in range(len(train))]

  def score(number: int) -> float:
    train, held_out, index, is_kept = clients[number]
    used = train.of_client(index)
    if np.isnan(before[number]) or not len(used):
      return before[number]
    if not how.steps and not is_kept:
      return before[number]
    after = weights
    if is_kept:
      own = tf.nest.map_structure(tf.constant, kept.of(index))
      after = algorithm.client_state.own_model(weights, own)
    if adapt:
      after = adapt(after, cohort.client_value(dataset.train, used, number), seed)
    predict = functools.partial(evaluator.predict, after, pool)
    return client_scores.top1(pool, held_out.some(np.array([index])), predict)[0]

  threads = threads or len(os.sched_getaffinity(0))
  executor = concurrent.futures.ThreadPoolExecutor(threads)
  try:
    found = tqdm.tqdm(
      executor.map(score, range(len(clients))),
      'personalizing',
      len(clients),
      unit='client',
      disable=None,
      delay=1,
      leave=False,
    )
    return np.fromiter(found, np.float64, len(clients))
  finally:
    executor.shutdown(cancel_futures=True)


def _with_room(algorithm, dataset) -> algorithm_lib.Algorithm:
  """Returns the algorithm with `max_positives` large enough for the request of every client.

  Every client, even an unseen client, can then request the rows of all its examples. Training
  may need a smaller `max_positives`, because unseen clients do not train, and because some
  algorithms use only some of a client's examples.
  """
  everyone = [dataset.train]
  if dataset.unseen is not None and len(dataset.unseen.train.numbers):
    pool = dataset.train.pool
    never = dataset.unseen.train
    everyone.append(client_data.PartitionedClientData(pool, never))
  for table in algorithm.tables:
    if table.request.selects:
      if table.name == classifier.CLASS:
        each = algorithm.model.rows_per_label
        most = max(of.largest_label_set * each for of in everyone)
        if algorithm.model.encoder.tied:
          most = max(of.largest_tied_set for of in everyone)
      else:
        most = max(of.largest_feature_set() for of in everyone)
      room = dataclasses.replace(table.request, max_positives=most)
      algorithm = algorithm.with_table(dataclasses.replace(table, request=room))
  return algorithm
