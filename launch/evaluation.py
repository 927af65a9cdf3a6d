"""Evaluates a run's newest checkpoint. Imports TensorFlow."""

import pathlib
from typing import NamedTuple

import numpy as np
import pandas as pd

from tasks import experiment
from tff_xc import classifier
from tff_xc import errors
from tff_xc import wording
from tff_xc.data import client_data as client_data_lib
from tff_xc.data import fingerprint
from tff_xc.experiment import checkpoints
from tff_xc.experiment import same_run
from tff_xc.measure import evaluation
from tff_xc.measure import ranking
from tff_xc.report import curves
from tff_xc.report import run_files
from tff_xc.round import process as process_lib
from tff_xc.runtime import registry as runtimes


def run(run_dir: str, data_dir: str | None, client: str | None) -> dict:
  """Evaluates, prints and writes; returns the content of evaluation.json.

  Writes evaluation.json, confusion.csv and confusion.png into the run's
  directory. It changes nothing else there, since the run may be training.

  Args:
    run_dir: the run's directory.
    data_dir: the present directory of its data; None: the run's own.
    client: the client of the confusion matrix; None: a large client.

  Raises:
    errors.InputError: there is no run, no checkpoint or no such client; or the
      data or the checkpoint's model are not those of the run.
  """
  found = load(run_dir, data_dir)
  dataset, weights = found.dataset, found.weights
  client = choose_client(dataset.train, client)
  measured = found.evaluator(weights)
  predictions, y = found.predictions(client)
  rounds = found.rounds
  result = {
    'rounds': rounds,
    'metrics': measured,
    'client': client,
    'client_top1': ranking.accuracy(predictions, y),
  }
  for name, value in [
    *measured.items(),
    ('client_top1', result['client_top1']),
  ]:
    print(f'{name:19s} {value:.4f}')
  path = pathlib.Path(run_dir)
  try:
    run_files.write_json(path / 'evaluation.json', result)
    _write_confusion(predictions, y, dataset.class_names, path)
  except OSError as e:
    raise errors.InputError(
      f'{path} cannot be written ({e.strerror}); the results above are all'
    ) from e
  done = wording.count(rounds, 'round')
  print(f'after {done}; confusion of client {client}:')
  print(path / 'confusion.png')
  return result


class Trained(NamedTuple):
  """A run's newest checkpoint, with its data.

  Attributes:
    dataset: of the run.
    evaluator: of the run's metrics.
    weights: after `rounds`.
    rounds: of the checkpoint.
  """

  dataset: client_data_lib.FederatedDataset
  evaluator: evaluation.Evaluator
  weights: classifier.ModelWeights
  rounds: int

  def predictions(self, client: str) -> tuple[np.ndarray, np.ndarray]:
    """Returns predicted and true classes, int [k], of a client's examples."""
    clients = self.dataset.train
    numbers = clients.numbers(client)
    predicted = self.evaluator.predict(self.weights, clients.pool, numbers)
    return predicted, clients.labels(client)


def load(run_dir: str, data_dir: str | None = None) -> Trained:
  """Loads a run's newest checkpoint and its data, and installs its runtime.

  Args:
    run_dir: the run's directory.
    data_dir: as in `run`.

  Raises:
    errors.InputError: as in `run`.
  """
  config = experiment.without_importance(run_files.read_run(run_dir).config)
  if config['runtime'] == runtimes.CLUSTER:  # No clients train here.
    config['runtime'] = runtimes.DEFAULT
  experiment.install_runtime(config)
  assembled = experiment.assemble(config, data_dir)
  same_run.check_data(
    run_dir, config, fingerprint.fingerprint(assembled.dataset)
  )
  process = process_lib.build_process(assembled.algorithm, config['seed'])
  state, rounds, _ = checkpoints.load_newest(run_dir, process.initialize())
  if not rounds:
    raise errors.InputError(
      f'{run_dir} has no sound checkpoint; start launch.train on it again'
    )
  evaluator = evaluation.Evaluator(
    assembled.algorithm.model, assembled.dataset, assembled.metrics
  )
  weights = process.get_model_weights(state)
  return Trained(assembled.dataset, evaluator, weights, rounds)


def choose_client(
  clients: client_data_lib.PartitionedClientData, wanted: str | None
) -> str:
  """Returns the client wanted; None: of the first hundred, one with most examples.

  Raises:
    errors.InputError: there is no such client.
  """
  if wanted is None:
    return max(clients.client_ids[:100], key=lambda c: len(clients.numbers(c)))
  if wanted not in clients.client_ids:
    some = ', '.join(clients.client_ids[:3])
    raise errors.InputError(
      f'--client={wanted}: there is no such client; ids look like {some}'
    )
  return wanted


def _write_confusion(predictions, labels, names, path: pathlib.Path) -> None:
  """Writes the client's confusion matrix (FedSS, fig. 7) as table and picture.

  Args:
    predictions: int [k].
    labels: int [k].
    names: of all classes; None: their numbers.
    path: the run's directory.
  """
  class_ids = np.unique(labels)
  matrix = ranking.confusion(predictions, labels, class_ids)
  if names is not None:
    class_ids = [names[number] for number in class_ids]
  table = pd.DataFrame(matrix, class_ids, [*class_ids, 'other'])
  with run_files.replacing(path / 'confusion.csv') as temporary:
    table.to_csv(temporary, index_label='class')
  curves.plot_confusion(matrix, class_ids, path / 'confusion.png')
