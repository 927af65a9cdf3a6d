"""Evaluates a run's newest checkpoint. Imports TensorFlow."""

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any
from typing import NamedTuple

import numpy as np
import pandas as pd
import scipy.sparse

from launch import client_evaluation
from tasks import encoders
from tasks import experiment
from tff_xc import classifier
from tff_xc import errors
from tff_xc import files
from tff_xc import wording
from tff_xc.data import client_data as client_data_lib
from tff_xc.data import fingerprint
from tff_xc.experiment import ccvr
from tff_xc.experiment import checkpoints
from tff_xc.experiment import client_states
from tff_xc.experiment import personalization
from tff_xc.experiment import same_run
from tff_xc.measure import evaluation
from tff_xc.measure import ranking
from tff_xc.report import clients
from tff_xc.report import curves
from tff_xc.report import run_files
from tff_xc.round import algorithm as algorithm_lib
from tff_xc.round import carried
from tff_xc.round import process as process_lib
from tff_xc.runtime import registry as runtimes


def run(
  run_dir: str,
  client: str | None = None,
  named: Mapping[str, str] | None = None,
  per_client: bool = False,
  how: personalization.Personalization | None = None,
  calibrate: tuple[int, int, float | None] | None = None,
) -> dict:
  """Evaluates, prints and writes; returns the content of evaluation.json.

  `named` are settings that the user names: where the run's data are now, and the encoder
  if it is the user's code. `per_client` and `how`: see `client_evaluation.run`. `calibrate` are the
  fields of `ccvr.Calibration`; its rate None: the clients'. Nothing else in the
  directory changes, since the run may be training.
  """
  found, path = load(run_dir, named), pathlib.Path(run_dir)
  how_rows = None
  if calibrate:
    found, how_rows = calibrated(found, calibrate)
  train, frame = found.dataset.train, None
  if per_client:  # Before anything is measured: it may be refused.
    frame = client_evaluation.run(found, how)
  result, more, confused = {'rounds': found.rounds}, {}, None
  if how_rows:
    result['calibrate'] = dataclasses.asdict(how_rows)
  if not scipy.sparse.issparse(train.pool.y):
    result['client'] = client = choose_client(train, client)
    part, *confused = found.predictions(client)
    of = f'the {part} examples of client {wording.shown(client)}'
    # Beside the scores of everybody's test, hence its name.
    more[f'client_{part[:5]}_top1'] = ranking.accuracy(*confused)
  elif client is not None:
    raise errors.InputError(
      f'--client={client}: a confusion matrix is of examples with one label each,'
      f' and those of {run_dir} have sets of labels; leave it out'
    )
  result |= {'metrics': found.evaluator(found.weights), **more}
  for name, value in {**result['metrics'], **more}.items():
    print(f'{name:19s} {value:.4f}')
  done = f'after {wording.count(found.rounds, "round")}'
  title = f'{found.dataset.name}, {wording.count(found.rounds, "round")}'
  if frame is not None:
    result['clients'] = client_evaluation.summary(frame, found, how)
    client_evaluation.show(frame, found, how)
  with files.writing(path, 'the results above are all'):
    files.write_json(path / 'evaluation.json', result)
    if confused:
      names = found.dataset.class_names
      _write_confusion(*confused, of, names, path, f'{title}: {of}')
      done += f'; confusion of {of}:\n{path / "confusion.png"}'
    if frame is not None:
      clients.write_csv(frame, path / 'clients.csv')
      clients.plot(frame, path / 'clients.png', title)
      done += (
        f'\nsingle clients:\n{path / "clients.csv"}\n{path / "clients.png"}'
      )
  print(done)
  return result


def calibrated(
  found: 'Trained', calibrate: tuple[int, int, float | None]
) -> tuple['Trained', ccvr.Calibration]:
  """Returns the run with class rows that CCVR has calibrated, in place of clients' own.

  And how; see `run`.
  """
  features, epochs, rate = calibrate
  if rate is None:
    rate = found.algorithm.local_training.learning_rate
  how = ccvr.Calibration(features, epochs, rate)
  weights = ccvr.calibrated(
    *(found.weights, found.algorithm.model, found.dataset, found.evaluator),
    *(how, int(found.state.seed[0])),
  )
  return found._replace(weights=weights, kept=None), how


class Trained(NamedTuple):
  """A run's newest checkpoint, with its data."""

  dataset: client_data_lib.FederatedDataset
  evaluator: evaluation.Evaluator
  weights: classifier.ModelWeights
  rounds: int
  algorithm: algorithm_lib.Algorithm
  state: process_lib.RoundState
  client_threads: int
  # Of a run whose clients have models of their own, what they keep; else None.
  kept: client_states.ClientStates | None = None

  def predictions(self, client: str) -> tuple[str, np.ndarray, np.ndarray]:
    """Returns 'test' if the client has such examples, else 'training'; and predicted
    and true classes of them, int [k]."""
    clients, held_out = self.dataset.train, self.dataset.held_out
    part, numbers = 'training', clients.numbers(client)
    if held_out is not None:
      own = held_out.of_client(clients.client_ids.index(client))
      part, numbers = ('test', own) if len(own) else (part, numbers)
    predicted = self.evaluator.predict(self.weights, clients.pool, numbers)
    return part, predicted, clients.pool.y[numbers]


def load(
  run_dir: str,
  named: Mapping[str, str] | None = None,
  round_number: int | None = None,
) -> Trained:
  """Loads a run's newest checkpoint (or a round's) and its data; installs its runtime."""
  found = run_files.read_run(run_dir, needs_metrics=False).config
  config = _checked(pathlib.Path(run_dir), found, named or {})
  config['runtime'] = runtimes.DEFAULT  # All is computed here.
  experiment.install_runtime(config)
  made = experiment.assemble(config)
  same_run.check_data(run_dir, found, fingerprint.fingerprint(made.dataset))
  process = process_lib.build_process(made.algorithm, config['seed'])
  state, rounds, more = checkpoints.load_newest(
    run_dir, process.initialize(), only=round_number
  )
  if not rounds:
    raise errors.InputError(
      f'{run_dir} has no sound checkpoint; start launch.train on it again'
    )
  weights, kept = process.get_model_weights(state), None
  if carried.has_own_models(made.algorithm):
    spec = made.algorithm.client_state.spec
    kept = client_states.of_checkpoint(spec, run_dir, more)
  evaluator = evaluation.Evaluator(
    made.algorithm.model, made.dataset, made.metrics
  )
  return Trained(
    made.dataset,
    evaluator,
    weights,
    rounds,
    made.algorithm,
    state,
    config['client_threads'],
    kept,
  )


def _checked(
  path: pathlib.Path, found: Mapping, named: Mapping[str, str]
) -> dict[str, Any]:
  """Returns the configuration of a run that somebody else may have written."""
  check_encoder(path, found, named)
  options, others = {**found.get('options', {})}, {}
  for name in named.keys() - {'encoder'}:
    (options if name in options else others)[name] = named[name]
  try:
    return experiment.recorded({**found, **others, 'options': options})
  except errors.InputError as e:
    file = path / run_files.CONFIG
    raise errors.InputError(f'{file}: {wording.shown(e)}') from e


def check_encoder(
  path: pathlib.Path, found: Mapping, named: Mapping[str, str]
) -> None:
  """Refuses to run code that a config.json names and the user does not."""
  recorded = str(run_files.flat(found).get('encoder', ''))
  shown = wording.shown(recorded)
  if named.get('encoder', recorded) != recorded:
    raise errors.InputError(
      f'--encoder={named["encoder"]}: {path} is a run with the encoder'
      f' {shown or "of its task"}; leave it out, or give that'
    )
  if recorded and encoders.is_code(recorded) and 'encoder' not in named:
    raise errors.InputError(
      f'{path / run_files.CONFIG} names --encoder={shown}, and no code that a directory'
      ' names is run before you name it: give this again, if you trust it'
    )


def choose_client(clients, wanted: str | None) -> str:
  """Returns the client wanted; None: of the first hundred, one with most examples."""
  if wanted is None:
    return max(clients.client_ids[:100], key=lambda c: len(clients.numbers(c)))
  if wanted not in clients.client_ids:
    some = ', '.join(clients.client_ids[:3])
    raise errors.InputError(
      f'--client={wanted}: there is no such client; ids look like {some}'
    )
  return wanted


def _write_confusion(
  predictions, labels, of: str, names, path: pathlib.Path, title: str
) -> None:
  """Writes a client's confusion matrix (FedSS, fig. 7) as table and picture."""
  class_ids = np.unique(labels)
  matrix = ranking.confusion(predictions, labels, class_ids)
  if names is not None:
    class_ids = [names[number] for number in class_ids]
  table = pd.DataFrame(matrix, class_ids, [*class_ids, 'other'])
  with files.csv_rows(path / 'confusion.csv') as file:
    table.to_csv(file, index_label=f'class of {of}', lineterminator='\r\n')
  curves.plot_confusion(matrix, class_ids, path / 'confusion.png', title)
