"""Loads the model or the state of a run. Imports TensorFlow.

found = trained.load('runs/demo')  # The model, without the data.
embeddings = found.model.embed(found.weights, x)
found = trained.restore('runs/demo')  # The model and the server's state, with the data.
scores = found.evaluator(found.weights)
"""

import pathlib
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from tasks import configuration, encoders, experiment, registry as tasks, task as task_lib
from tff_xc import classifier, errors, files, wording
from tff_xc.data import client_data, description as description_lib, fingerprint
from tff_xc.experiment import ccvr, checkpoints, client_states, same_run, storage
from tff_xc.measure import catalog, evaluation
from tff_xc.report import run_files
from tff_xc.round import algorithm as algorithm_lib, parts, process as process_lib
from tff_xc.runtime import registry as runtimes

LAST, BEST = 'last', 'best'
# CHOSEN means the best round that has a checkpoint, if the run chose the best round by a validation
# score. Otherwise, it means the last round.
CHOSEN = 'chosen'


class Trained(NamedTuple):
  """The global model of a run after some rounds."""

  config: Mapping[str, Any]  # The run's config.json.
  model: classifier.EmbeddingClassifier  # The model as the algorithm builds it.
  # The weights of `LearningProcess.get_model_weights`, in which all pending updates are applied.
  weights: classifier.ModelWeights
  rounds: int
  description: description_lib.Description
  class_names: list[str] | None  # None: class numbers serve as names.
  # The scores after these rounds; empty if they were not measured.
  scores: dict[str, float]
  # The epsilon of a private run after these rounds; None: it is unknown, or the run is not private.
  epsilon: float | None = None


class Restored(NamedTuple):
  """A run's data, algorithm and state after some rounds."""

  dataset: client_data.FederatedDataset
  evaluator: evaluation.Evaluator
  weights: classifier.ModelWeights  # The same weights as in `Trained`.
  rounds: int
  algorithm: algorithm_lib.Algorithm
  state: process_lib.RoundState
  client_threads: int
  # The models that clients keep; None if clients do not keep models in this run.
  kept: client_states.ClientStates | None = None

  def predictions(self, client: str) -> tuple[str, np.ndarray, np.ndarray]:
    """Predicts the classes of a client's test examples.

    If the client has no test examples, its training examples are used. Returns 'test' or
    'training', the predicted classes and the true classes, int [k].
    """
    clients, held_out = self.dataset.train, self.dataset.held_out
    part, numbers = 'training', clients.numbers(client)
    if held_out is not None:
      own = held_out.of_client(clients.client_ids.index(client))
      part, numbers = ('test', own) if len(own) else (part, numbers)
    predicted = self.evaluator.predict(self.weights, clients.pool, numbers)
    return part, predicted, clients.pool.labels[numbers]


def load(
  run_dir: str, round_wanted: str = CHOSEN, named: Mapping[str, str] | None = None
) -> Trained:
  """Loads the model of a round: 'chosen', 'last', 'best' (by --best_by) or a number.

  `named` has the encoder that the user names on the command line, if any. Raises
  `errors.InputError` for missing or damaged files, and for untrusted code.
  """
  path = pathlib.Path(run_dir)
  run = run_files.read_run(path, needs_metrics=False)
  chosen = _round(run, round_wanted)
  check_encoder(path, run.config, named or {})
  description, model = _model(path, run.config)
  rounds, weights = _weights(path, model, chosen)
  measured = run.metrics[run.metrics['round'] == rounds]
  of_round = {
    name: float(measured[name].iloc[0]) for name in measured if measured[name].notna().any()
  }
  return Trained(
    config=run.config,
    model=model,
    weights=weights,
    rounds=rounds,
    description=description,
    class_names=run_files.class_names(path / run_files.CLASSES, model.num_classes),
    scores={n: of_round[n] for n in _scores(run) if n in of_round},
    epsilon=of_round.get('epsilon'),
  )


def restore(
  run_dir: str, named: Mapping[str, str] | None = None, round_number: int | None = None
) -> Restored:
  """Loads the data of a run and its newest checkpoint; installs the default runtime.

  `round_number` selects another checkpoint. `named` has settings from the command line: paths
  of data that have moved since the training, and the encoder if it is the user's code.
  """
  path = pathlib.Path(run_dir)
  found = run_files.read_run(path, needs_metrics=False).config
  check_encoder(path, found, named or {})
  config = _with_moved_data(path, found, named or {})
  config['runtime'] = runtimes.DEFAULT  # All computations run in this process.
  experiment.install_runtime(config)
  made = experiment.assemble(config)
  same_run.check_data(run_dir, found, fingerprint.fingerprint(made.dataset))
  process = process_lib.build_process(made.algorithm, config['seed'])
  state, rounds, more = checkpoints.load_newest(run_dir, process.initialize(), only=round_number)
  if rounds not in checkpoints.kept(run_dir):
    raise errors.InputError(f'{run_dir} has no sound checkpoint; start launch.train on it again')
  kept = None
  if parts.has_own_models(made.algorithm):
    spec = made.algorithm.client_state.spec
    kept = client_states.of_checkpoint(spec, run_dir, more)
  return Restored(
    dataset=made.dataset,
    evaluator=evaluation.Evaluator(made.algorithm.model, made.dataset, made.metrics),
    weights=process.get_model_weights(state),
    rounds=rounds,
    algorithm=made.algorithm,
    state=state,
    client_threads=config['client_threads'],
    kept=kept,
  )


def calibrated(
  found: Restored, features: int, epochs: int, rate: float | None
) -> tuple[Restored, ccvr.Calibration]:
  """Calibrates the class rows of a run with CCVR; returns the run and the calibration.

  The arguments are those of `ccvr.Calibration`. If `rate` is None, the client learning rate
  is used. The result does not have the models that clients keep.
  """
  if rate is None:
    rate = found.algorithm.local_training.learning_rate
  how = ccvr.Calibration(features, epochs, rate)
  weights = ccvr.calibrated(
    found.weights,
    found.algorithm.model,
    found.dataset,
    found.evaluator,
    how,
    int(found.state.seed[0]),
  )
  return found._replace(weights=weights, kept=None), how


def check_rows(config: Mapping, instead: str) -> None:
  """Refuses to predict classes if clients keep and train their own class rows.

  The class rows of the server are then not trained. `config` is the run's config.json, and
  `instead` says what the user can do.
  """
  if config.get('hyperparameters', {}).get('head_epochs'):
    raise errors.InputError(
      f'clients of {config["algorithm"]} keep their own class rows. The rows of the server are'
      f' not trained, so they would predict classes by chance; {instead}'
    )


def check_encoder(path: pathlib.Path, config: Mapping, named: Mapping[str, str]) -> None:
  """Refuses to run code that config.json names, except if the user names it, too."""
  recorded = str(run_files.flat(config).get('encoder', ''))
  shown = wording.shown(recorded)
  if named.get('encoder', recorded) != recorded:
    raise errors.InputError(
      f'--encoder={named["encoder"]}: {path} is a run with the encoder'
      f' {shown or "of its task"}; leave --encoder out, or give the encoder of the run'
    )
  if recorded and encoders.is_code(recorded) and 'encoder' not in named:
    raise errors.InputError(
      f'{path / run_files.CONFIG} names --encoder={shown}. Code that only a directory names is'
      ' not executed: give this flag again, if you trust the code'
    )


def round_of(run_dir: str, wanted: str, warns: bool = False) -> int | None:
  """Returns the number of the round that `load` loads; None: the newest sound checkpoint."""
  return _round(run_files.read_run(run_dir, needs_metrics=False), wanted, warns)


def choose_client(clients, wanted: str | None) -> str:
  """Returns `wanted`; if None, the client with most examples among the first hundred."""
  if wanted is None:
    return max(clients.client_ids[:100], key=lambda c: len(clients.numbers(c)))
  if wanted not in clients.client_ids:
    some = ', '.join(clients.client_ids[:3])
    raise errors.InputError(f'--client={wanted}: there is no such client; ids look like {some}')
  return wanted


def _with_moved_data(
  path: pathlib.Path, config: Mapping, named: Mapping[str, str]
) -> dict[str, Any]:
  """Returns a run's configuration, in which `named` replaces settings.

  Raises `errors.InputError` if the run's config.json has invalid settings.
  """
  options, others = {**config.get('options', {})}, {}
  for name in named.keys() - {'encoder'}:
    (options if name in options else others)[name] = named[name]
  try:
    return configuration.recorded({**config, **others, 'options': options})
  except errors.InputError as e:
    raise _of_config(path, e) from e


def _of_config(path: pathlib.Path, error: errors.InputError) -> errors.InputError:
  return errors.InputError(f'{path / run_files.CONFIG}: {wording.shown(error)}')


def _round(run: run_files.Run, wanted: str, warns: bool = True) -> int | None:
  """Returns the number of a round that has a checkpoint; None: the newest sound checkpoint.

  If `warns`, the function prints a warning if the chosen round has no checkpoint.
  """
  kept = checkpoints.kept(run.path)
  if not kept:
    raise errors.InputError(f'{run.path} has no checkpoint; start launch.train on it again')
  measured, by = _scores(run), run.config.get('best_by') or ''
  is_validated = by in measured and by in catalog.FOR_CHOOSING
  # Epsilon does not cover a choice by scores.
  is_validated &= not configuration.is_private(run.config)
  if wanted == LAST or (wanted == CHOSEN and not is_validated):
    return None
  number, why = wanted, ''
  if wanted in (BEST, CHOSEN) and measured:
    by = by if by in measured else measured[0]
    values = run.metrics.set_index('round')[by]
    if catalog.SCORES[by].better == 'lower':
      values = -values
    number = str(int(values.idxmax()))
    why = f'the best round by {by}, {number}, has no checkpoint'
  if number in map(str, kept):
    return int(number)
  if wanted == CHOSEN:
    saved = values[values.index.isin(kept)].dropna()
    instead = int(saved.idxmax()) if len(saved) else kept[-1]
    if warns:
      print(f'warning: {why}; the model of round {instead} is taken', file=sys.stderr)
    return instead
  raise errors.InputError(
    f'--round={wanted}: {why or f"{run.path} has no such checkpoint"}; give last, best'
    f' or one of {", ".join(map(str, kept))}'
  )


def _scores(run: run_files.Run) -> list[str]:
  """Returns the scores that a run measured, the headline first."""
  return [
    name
    for name in dict.fromkeys((*tasks.get(run.task).metrics, *catalog.SCORES))
    if name in run.metrics and run.metrics[name].notna().any()
  ]


def _model(path: pathlib.Path, config: Mapping):
  """Returns the description of a run's data, and its model."""
  file = path / run_files.DESCRIPTION
  try:
    description = description_lib.from_json(files.read_json(file))
  except (OSError, ValueError) as e:
    raise errors.DamageError(
      f'{file} is missing or damaged ({wording.shown(e)}); resume the run for a moment, which'
      ' writes the file again'
    ) from e
  try:
    model = experiment.trained_model(config, description)
  except errors.InputError as e:
    raise _of_config(path, e) from e
  task_lib.check_memory(
    model,
    f'{path}: the model of {model.num_classes:,} classes',
    'free some, or take a smaller model',
  )
  return description, model


def _weights(path: pathlib.Path, model, chosen: int | None):
  """Returns (round, weights) of the chosen checkpoint, or of the newest sound one."""
  specs = model.weight_specs()
  versions = checkpoints.kept(path) if chosen is None else [chosen]
  for version in reversed(versions):
    try:
      return version, checkpoints.load_model(path, version, specs)
    except storage.DamagedError as e:
      damage = e
      if version != versions[0]:
        print(
          f'warning: the checkpoint of round {version} is damaged ({e}); the previous one is used',
          file=sys.stderr,
        )
  file = checkpoints.path_of(path, version)
  raise errors.DamageError(f'{file} is damaged ({damage}); give another --round, or restore it')
