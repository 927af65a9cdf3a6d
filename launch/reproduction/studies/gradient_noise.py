"""How far FedSS's aggregated delta is from FullSoftmax's, by m (FedSS, fig. 9).

The K clients of a round hold one batch and draw different negatives. All take one
local pass from the initial weights. In a first round the server's momentum is the
mean delta itself, so the weights after it differ by the difference of the deltas.
"""

import itertools
import pathlib
from collections.abc import Mapping
from collections.abc import Sequence
from typing import TYPE_CHECKING
from typing import Any

from launch.reproduction import rows as rows_lib
from launch.reproduction import studies
from tasks import experiment
from tasks import registry as tasks
from tff_xc import errors

if TYPE_CHECKING:
  import numpy as np

  from tff_xc import classifier
  from tff_xc.data import client_data

BATCH = 32
_BATCHES = 4
_TASKS = {'small': 'glyphs', 'paper': 'sop'}
_SMALL = {
  'num_classes': 160,
  'num_clients': 20,
  'classes_per_client': 20,
  'examples_per_client': 60,
  'clients_per_round': 8,
}
_FLAGS = {
  *('data_dir', 'seed', 'client_threads', 'device', 'clients_per_round'),
  *('client_learning_rate', 'num_classes', 'encoder_weights'),
}
# The fewest and the most negatives of Tables 1 and 2.
FEWEST, MOST = 5, 80
LARGEST_RATIO = 'noise over that with the next fewer negatives, the largest'
OF_MOST = f'noise with m = {MOST} over that with m = {FEWEST}'
EXPONENTIAL, POWER = (
  f"share of the noise's logarithm that a line over {of} explains, R²"
  for of in ('m', 'the logarithm of m')
)
OF_ALL = 'noise with all other classes, m = n - |P|'


# Of the mean absolute differences of aggregated deltas.
_PARTS = ('all weights', 'encoder', 'class rows')


def resolve(name: str, request) -> dict[str, Any]:
  """Returns the settings; see `studies`."""
  rows_lib.refuse(name, request.told() - {*_FLAGS, 'task'})
  task = request.task or _TASKS[request.scale]
  small = _SMALL if task == _TASKS['small'] else {}
  config = experiment.resolve(task, 'fedss', {**small, **request.given})
  known = tasks.get(task).known_classes(config['options'], config['data_dir'])
  # With one class in a batch; `noises` has the data, and looks again.
  if known is not None:
    _check_classes(known - 1)
  return config


def _check_classes(others: int) -> None:
  """Refuses so few classes outside of a batch that the m are not all there."""
  if others <= MOST:
    raise errors.InputError(
      f'a batch leaves {others} other classes at most, and the noise is that of up'
      f' to {MOST} sampled ones; give more classes (--num_classes), or another --task'
    )


def measure(
  config: Mapping[str, Any], folder: pathlib.Path
) -> list[dict[str, Any]]:
  """Returns the noise by m, and draws FOLDER/result.png; see `studies`."""
  import numpy as np

  experiment.install_runtime(config)
  load = tasks.get(config['task']).load
  dataset, model = load(config['data_dir'], config['options'])
  scale, found = noises(dataset, model, config)
  clients = config['hyperparameters']['clients_per_round']
  title = f'{dataset.num_classes:,} classes, {clients} clients of one batch of {BATCH}'
  _draw(found, title, folder / 'result.png')
  lines = []
  for m, values in found.items():
    row = 'm = n - |P|' if m == max(found) else f'm = {m:,}'
    shown = dict(zip(_PARTS, values, strict=True))
    shown['of the mean |delta| %'] = 100 * values[0] / scale
    lines += [
      {'row': row, 'metric': heading, 'mean': float(value)}
      for heading, value in shown.items()
    ]
  of_all = [values[0] for values in found.values()]
  ratio = max(b / a for a, b in itertools.pairwise(of_all))
  m, logarithm = np.array([*found][:-1]), np.log(of_all[:-1])
  explained = lambda x: float(np.corrcoef(x, logarithm)[0, 1] ** 2)
  return [
    *lines,
    studies.value(LARGEST_RATIO, ratio),
    studies.value(EXPONENTIAL, explained(m)),
    studies.value(POWER, explained(np.log(m))),
    studies.value(OF_ALL, of_all[-1]),
    studies.value(OF_MOST, found[MOST][0] / found[FEWEST][0]),
  ]


def noises(
  dataset: 'client_data.FederatedDataset',
  model: 'classifier.EmbeddingClassifier',
  config: Mapping[str, Any],
) -> tuple[float, dict[int, list[float]]]:
  """Returns the mean |delta| of FullSoftmax, and the noise of FedSS's `_PARTS` by m."""
  import numpy as np

  from tff_xc.algorithms import fedss

  batches = _batches(dataset)
  most = max(len(np.unique(dataset.train.pool.y[b])) for b in batches)
  n = dataset.num_classes
  grid = _grid(n - most)
  values = {**config['hyperparameters'], 'batch_size': BATCH}
  taken = {k: v for k, v in values.items() if k in fedss.FullSoftmax.names}
  training = fedss.FullSoftmax(**taken).local_training()
  after = lambda made: _weights_after(made, dataset, batches, config)
  before, exact = after(
    fedss.FullSoftmax.made(model=model, local_training=training)
  )
  found = {}
  for m in (*grid, n - 1):  # A client takes all n - |P| others at most.
    made = fedss.FedSS.made(
      model=model, max_positives=most, negatives=m, local_training=training
    )
    pairs = zip(after(made)[1], exact, strict=True)
    each = [mean_difference(*pair) for pair in pairs]
    found[m] = np.mean(each, axis=0).tolist()
  scale = np.mean([mean_difference(w, before)[0] for w in exact])
  return float(scale), found


def _grid(most: int) -> list[int]:
  """Returns the m below `most`, each twice the last."""
  _check_classes(most)
  doubled = (FEWEST * 2**power for power in itertools.count())
  return [*itertools.takewhile(lambda m: m < most, doubled)]


def _batches(dataset: 'client_data.FederatedDataset') -> list['np.ndarray']:
  """Returns the first examples of the first clients that have enough."""
  train = dataset.train
  large = [k for k, size in enumerate(train.partition.sizes) if size >= BATCH]
  if not large:
    raise errors.InputError(
      f'no client has {BATCH} examples, as a batch has here'
    )
  return [train.partition.of_client(k)[:BATCH] for k in large[:_BATCHES]]


def _weights_after(made, dataset, batches, config):
  """Returns the initial weights, and those after a first round on each batch."""
  import numpy as np

  from tff_xc.experiment import cohort
  from tff_xc.round import process as process_lib

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
  """Returns mean |a - b| of two `ModelWeights`: all, the encoder's, the tables'."""
  import numpy as np

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


def _draw(
  found: Mapping[int, Sequence[float]], title: str, path: pathlib.Path
) -> None:
  """Draws noise over m; the last m, of no noise, has no place on a log axis."""
  from tff_xc.report import pictures

  figure, [ax] = pictures.panels(1, 1, (6.5, 4))
  *places, _ = found
  for i, (label, style) in enumerate(
    zip(_PARTS, pictures.styles(), strict=False)
  ):
    values = [found[m][i] for m in places]
    ax.plot(places, values, label=label, **style)
  ax.set(xscale='log', yscale='log')
  y = 'mean absolute difference of the deltas'
  pictures.label(ax, title, 'm, sampled negatives', y)
  ax.set_xticks(places, [f'{m:,}' for m in places])
  ax.set_xticks([], minor=True)
  ax.legend(frameon=False)
  pictures.save(figure, path)
