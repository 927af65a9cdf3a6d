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

from launch.reproduction import outcome
from launch.reproduction.studies import study
from tasks import experiment
from tasks import registry as tasks
from tff_xc import errors

if TYPE_CHECKING:
  from launch.reproduction.studies import deltas

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
# The m of which something is expected.
FEWEST, MOST = 5, 80
LARGEST_RATIO = 'noise over that with the next fewer negatives, the largest'
OF_MOST = f'noise with m = {MOST} over that with m = {FEWEST}'
OF_ALL = 'noise with all other classes, m = n - |P|'


def resolve(
  name: str, scale: str, task: str | None, given: Mapping[str, Any]
) -> dict[str, Any]:
  """Returns the settings; see `study.resolve`."""
  study.refuse(name, set(given) - _FLAGS)
  task = task or _TASKS[scale]
  changes = {**(_SMALL if task == _TASKS['small'] else {}), **given}
  config = experiment.resolve(task, 'fedss', changes)
  known = tasks.get(task).known_classes(config['options'], config['data_dir'])
  # With one class in a batch; `deltas` has the data, and looks again.
  if known is not None:
    check_classes(known - 1)
  return config


def check_classes(others: int) -> None:
  """Refuses so few classes outside of a batch that the m are not all there.

  Raises:
    errors.InputError: there are at most `MOST` others.
  """
  if others <= MOST:
    raise errors.InputError(
      f'a batch leaves {others} other classes at most, and the noise is that of up'
      f' to {MOST} sampled ones; give more classes (--num_classes), or another --task'
    )


def measure(
  config: Mapping[str, Any],
  folder: pathlib.Path,
  output: pathlib.Path,
  jobs: int = 0,
) -> study.Measured:
  """Returns the noise by m, and draws FOLDER/result.png; see `study.measure`."""
  del output, jobs
  from launch.reproduction.studies import deltas

  experiment.install_runtime(config)
  load = tasks.get(config['task']).load
  dataset, model = load(config['data_dir'], config['options'])
  scale, found = deltas.noises(dataset, model, config)
  clients = config['hyperparameters']['clients_per_round']
  title = (
    f'{dataset.num_classes:,} classes, {clients} clients of one batch of'
    f' {deltas.BATCH}'
  )
  deltas.draw(found, title, folder / 'result.png')
  rows = tuple(
    (
      f'{each.negatives:,}' if each is not found[-1] else 'n - |P|',
      *(f'{value:.3g}' for value in each[1:]),
      f'{each.all / scale:.2%}',
    )
    for each in found
  )
  heading = 'm', 'all weights', 'encoder', 'class rows', 'of the mean |delta|'
  return study.Measured(
    _values(found), (outcome.Cells(title, heading, rows),), ('result.png',)
  )


def _values(found: Sequence['deltas.Noise']) -> dict[str, float]:
  *sampled, everything = found
  of = {each.negatives: each.all for each in sampled}
  return {
    LARGEST_RATIO: max(b.all / a.all for a, b in itertools.pairwise(found)),
    OF_ALL: everything.all,
    OF_MOST: of[MOST] / of[FEWEST],
  }
