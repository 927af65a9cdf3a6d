"""Aggregated deltas of FedSS and of FullSoftmax on one batch. Imports TensorFlow."""

import pathlib
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import matplotlib.figure
import numpy as np

from launch.reproduction.studies import gradient_noise
from tff_xc import classifier
from tff_xc import errors
from tff_xc.algorithms import fedss
from tff_xc.algorithms import registry as algorithms
from tff_xc.data import client_data
from tff_xc.experiment import cohort
from tff_xc.report import pictures
from tff_xc.round import process as process_lib

BATCH = 32
_BATCHES = 4


class Noise(NamedTuple):
  """Mean absolute differences of the aggregated deltas, over batches.

  Attributes:
    negatives: m.
    all: over all weights.
    encoder: over the encoder's.
    rows: over the class rows.
  """

  negatives: int
  all: float
  encoder: float
  rows: float


def noises(
  dataset: client_data.FederatedDataset,
  model: classifier.EmbeddingClassifier,
  config: Mapping[str, Any],
) -> tuple[float, list[Noise]]:
  """Returns the mean |delta| of FullSoftmax, and the noise of FedSS by m.

  Args:
    dataset: some of whose clients' first examples are the batches.
    model: the embedding classifier.
    config: from `resolve`; a runtime is installed.

  Raises:
    errors.InputError: a client has too few examples, or there are too few classes.
  """
  values = config['hyperparameters']
  batches = _batches(dataset)
  most = max(len(np.unique(dataset.train.pool.y[b])) for b in batches)
  n = dataset.num_classes
  grid = list(_grid(n - most))
  training = algorithms.get(config['algorithm'])(
    **{**values, 'batch_size': BATCH}
  ).local_training()
  after = lambda made: _weights_after(made, dataset, batches, config)
  before, exact = after(
    fedss.FullSoftmax.made(model=model, local_training=training)
  )
  found = []
  for m in (*grid, n - 1):  # A client takes all n - |P| others at most.
    made = fedss.FedSS.made(
      model=model, max_positives=most, negatives=m, local_training=training
    )
    pairs = zip(after(made)[1], exact, strict=True)
    each = [mean_difference(*pair) for pair in pairs]
    found.append(Noise(m, *np.mean(each, axis=0).tolist()))
  scale = np.mean([mean_difference(w, before)[0] for w in exact])
  return float(scale), found


def _grid(most: int) -> Iterator[int]:
  """Yields the m below `most`, each twice the last."""
  gradient_noise.check_classes(most)
  m = gradient_noise.FEWEST
  while m < most:
    yield m
    m *= 2


def _batches(dataset: client_data.FederatedDataset) -> list[np.ndarray]:
  """Returns the first examples of the first clients that have enough."""
  train = dataset.train
  large = np.flatnonzero(train.partition.sizes >= BATCH)[:_BATCHES]
  if not len(large):
    raise errors.InputError(
      f'no client has {BATCH} examples, as a batch has here'
    )
  return [train.partition.of_client(k)[:BATCH] for k in large]


def _weights_after(made, dataset, batches, config):
  """Returns the initial weights, and those after a first round on each batch."""
  process = process_lib.build_process(made, config['seed'])
  clients = config['hyperparameters']['clients_per_round']
  found = []
  for i, numbers in enumerate(batches):
    value = cohort.client_value(dataset.train, numbers, 0)
    # Each client of each batch has an id, and hence negatives, of its own.
    examples = [
      value._replace(client_id=np.int64(i * clients + k))
      for k in range(clients)
    ]
    # A new state, since a round may update the old one in place.
    state = process.next(process.initialize(), examples).state
    found.append(process.get_model_weights(state))
  return process.get_model_weights(process.initialize()), found


def mean_difference(a, b) -> tuple[float, float, float]:
  """Returns mean |a - b| over all weights, the encoder's and the tables'.

  Args:
    a: `ModelWeights`.
    b: `ModelWeights` of the same model.
  """
  sums = []
  for part in ('encoder', 'tables'):
    pairs = [
      (np.asarray(value, np.float64), getattr(b, part)[name])
      for name, value in getattr(a, part).items()
    ]
    total = sum(np.abs(x - np.asarray(y)).sum() for x, y in pairs)
    sums.append((total, sum(x.size for x, _ in pairs)))
  (encoder, e), (rows, r) = sums
  return (encoder + rows) / (e + r), encoder / max(e, 1), rows / max(r, 1)


def draw(found: Sequence[Noise], title: str, path: pathlib.Path) -> None:
  """Draws noise over m; the last m, of no noise, has no place on a log axis."""

  figure = matplotlib.figure.Figure(figsize=(6.5, 4), layout='constrained')
  ax = figure.subplots()
  shown = found[:-1]
  for style, name in zip(
    pictures.styles(), ('all', 'encoder', 'rows'), strict=False
  ):
    colour, line, marker = style
    ax.plot(
      [each.negatives for each in shown],
      [getattr(each, name) for each in shown],
      color=colour,
      linestyle=line,
      marker=marker,
      label={'all': 'all weights', 'rows': 'class rows'}.get(name, name),
    )
  ax.set(
    xscale='log',
    yscale='log',
    xlabel='m, sampled negatives',
    ylabel='mean absolute difference of the deltas',
    title=title,
  )
  places = [each.negatives for each in shown]
  ax.set_xticks(places, [f'{m:,}' for m in places])
  ax.set_xticks([], minor=True)
  ax.grid(alpha=0.3)
  ax.legend(frameon=False)
  pictures.save(figure, path)
