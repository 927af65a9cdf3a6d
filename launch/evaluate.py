"""Evaluates the newest checkpoint of a run.

  python -m launch.evaluate --run_dir=runs/demo

This command prints every metric of the run's task and writes evaluation.json. If each example
has one label, the command also scores the examples of one client: its test examples
(client_test_top1), or if it has none, its training examples (client_train_top1). It writes the
confusion matrix of these examples to confusion.png and confusion.csv. It changes no other file
of the run. The command needs the same data as the run.

  python -m launch.evaluate --run_dir=runs/demo --per_client
  python -m launch.evaluate --run_dir=runs/demo --personalize=5

These commands also score the model on every client's own held-out examples. They print a table,
and write clients.csv and clients.png. --per_client scores the global model. --personalize also
scores a model that each client trains from the global model; these models are then discarded.
For clients to have held-out examples, train with --client_test_fraction, or with data that say
which client owns each test example. If the clients of the run keep their own heads (fedrep),
the commands score these heads, too, and --personalize starts from them.

  python -m launch.evaluate --run_dir=runs/demo --calibrate=100

This command trains the class rows before it scores the model (CCVR). It uses 100 virtual
features per class, which it draws from statistics of the clients' embeddings. The checkpoint
does not change.
"""

from __future__ import annotations

import dataclasses
import pathlib
import sys
import textwrap
from collections.abc import Mapping
from typing import Any

from absl import flags

from launch import app, settings
from tasks import configuration
from tff_xc import errors, files, wording
from tff_xc.lazy import Lazy, np, pd, sparse
from tff_xc.options import hyperparameters as hp
from tff_xc.report import run_files, text_table

client_scores = Lazy('tff_xc.measure.client_scores')
clients = Lazy('tff_xc.report.clients')
personalization = Lazy('tff_xc.experiment.personalization')
ranking = Lazy('tff_xc.measure.ranking')
trained = Lazy('launch.trained')

_OF_PERSONALIZE = ('personalize_part', 'personalize_learning_rate')


def main(arguments) -> None:
  values = flags.FLAGS
  if not values.run_dir:
    raise errors.InputError('--run_dir is missing: the directory of a run')
  settings.check_of('personalize', _OF_PERSONALIZE)
  calibrate = settings.calibration()
  how = None
  if values.personalize is not None:
    how = personalization.Personalization(
      steps=values.personalize,
      part=values.personalize_part or 'all',
      learning_rate=values.personalize_learning_rate,
    )
  run(
    values.run_dir,
    client=values.client,
    named=settings.named(),
    per_client=values.per_client or how is not None,
    how=how,
    calibrate=calibrate,
  )


def run(
  run_dir: str,
  client: str | None = None,
  named: Mapping[str, str] | None = None,
  per_client: bool = False,
  how: personalization.Personalization | None = None,
  calibrate: tuple[int, int, float | None] | None = None,
) -> dict[str, Any]:
  """Evaluates a run, prints and writes the results; returns the content of evaluation.json.

  `trained.restore` describes `named`. If `per_client` is true, `score_clients` runs with `how`.
  `calibrate` has the arguments of `trained.calibrated`. The function does not change any other
  file, because the run may still be training.
  """

  found, path = trained.restore(run_dir, named), pathlib.Path(run_dir)
  config = run_files.read_config(path / run_files.CONFIG)
  if how and how.steps and configuration.without_importance(config) != config:
    print(
      'warning: the run read class probabilities from a file, and here clients train without them',
      file=sys.stderr,
    )
  result: dict[str, Any] = {'rounds': found.rounds}
  if calibrate:
    found, calibration = trained.calibrated(found, *calibrate)
    result['calibrate'] = dataclasses.asdict(calibration)
  # `score_clients` may refuse the run, so it comes before the other measurements.
  frame = score_clients(found, how) if per_client else None
  train, more, confused = found.dataset.train, {}, None
  if not sparse.issparse(train.pool.labels):
    result['client'] = client = trained.choose_client(train, client)
    part, *confused = found.predictions(client)
    of = f'the {part} examples of client {wording.shown(client)}'
    # The name distinguishes this score from scores on the whole test set.
    more[f'client_{part[:5]}_top1'] = ranking.accuracy(*confused)
  elif client is not None:
    raise errors.InputError(
      f'--client={client}: a confusion matrix needs examples with one label each,'
      f' but those of {run_dir} have sets of labels; leave it out'
    )
  result |= {'metrics': found.evaluator(found.weights), **more}
  for name, value in {**result['metrics'], **more}.items():
    print(f'{name:19s} {value:.4f}')
  rounds = wording.count(found.rounds, 'round')
  done, title = f'after {rounds}', f'{found.dataset.name}, {rounds}'
  chosen = trained.round_of(run_dir, trained.CHOSEN)
  if chosen not in (None, found.rounds):
    done += f'; launch.predict and launch.export use the model of round {chosen}'
  if frame is not None:
    result['clients'] = _summary(frame, found, how)
    _show(frame, found, how)
  with files.writing(path, 'the results above are all'):
    files.write_json(path / 'evaluation.json', result)
    if confused:
      _write_confusion(confused, of, found.dataset.class_names, path, f'{title}: {of}')
      done += f'; confusion of {of}:\n{path / "confusion.png"}'
    if frame is not None:
      clients.write_csv(frame, path / 'clients.csv')
      clients.plot(frame, path / 'clients.png', title)
      done += f'\nsingle clients:\n{path / "clients.csv"}\n{path / "clients.png"}'
  print(done)
  return result


def _write_confusion(confused, of: str, names, path: pathlib.Path, title: str) -> None:
  """Writes a client's confusion matrix (FedSS, fig. 7) as a table and as a picture."""
  from tff_xc.report import curves

  predictions, labels = confused
  class_ids = np.unique(labels)
  matrix = ranking.confusion(predictions, labels, class_ids)
  if names is not None:
    class_ids = [names[number] for number in class_ids]
  table = pd.DataFrame(matrix, class_ids, [*class_ids, 'other'])
  with files.csv_rows(path / 'confusion.csv') as file:
    table.to_csv(file, index_label=f'class of {of}', lineterminator='\r\n')
  curves.plot_confusion(matrix, class_ids, path / 'confusion.png', title)


# -- single clients --


def score_clients(
  found: trained.Restored, how: personalization.Personalization | None
) -> pd.DataFrame:
  """Scores the global model on each client's own held-out examples.

  Returns the frame of `client_scores.clients` with the additional column `clients.GLOBAL`. If
  `how` is given or clients keep models, the frame also has the column `clients.PERSONAL`. The
  score of a client without held-out examples is nan.
  """

  frame = client_scores.clients(found.dataset)
  scores = [
    found.evaluator.of_clients(found.weights, held_out)
    for _, _, held_out in client_scores.parts(found.dataset)
  ]
  frame[clients.GLOBAL] = [each for part in scores for each in part]
  if how or found.kept:
    frame[clients.PERSONAL] = personalization.scores(
      how or personalization.Personalization(0),
      found.algorithm,
      found.dataset,
      found.evaluator,
      found.state,
      found.weights,
      frame[clients.GLOBAL].to_numpy(),
      found.client_threads,
      found.kept,
    )
  return frame


def _summary(
  frame: pd.DataFrame, found: trained.Restored, how: personalization.Personalization | None
) -> dict[str, Any]:
  """Returns the entry 'clients' of evaluation.json, for trained clients and unseen clients."""

  result: dict[str, Any] = {}
  for name, part in frame.groupby('part', sort=False):
    scored = part.dropna(subset=[clients.GLOBAL])
    result[name] = {'clients': len(scored), 'left_out': len(part) - len(scored)}
    for column in (clients.GLOBAL, clients.PERSONAL):
      if column in frame:
        of = client_scores.statistics(scored[column].to_numpy())
        result[name] |= {f'{column}_{n}': value for n, value in of.items()}
  if found.kept:
    result['keep_models'] = len(found.kept.kept)
  if how:
    rows = {'class_rows': _class_rows(found)}
    result['personalize'] = dataclasses.asdict(how) | rows
  return result


def _class_rows(found: trained.Restored) -> str:
  """Names the class rows that a client has while it personalizes the model."""
  request = found.algorithm.tables[0].request
  if not request.selects:
    return 'all'
  more = request.negatives
  return f'its own and {more} sampled ones' if more else 'its own'


def _show(
  frame: pd.DataFrame, found: trained.Restored, how: personalization.Personalization | None
) -> None:
  """Prints the table of client scores, and the number of clients without a score."""

  width = text_table.terminal_width()
  title = 'top-1 of single clients on their own held-out examples'
  if found.kept:
    number = wording.count(len(found.kept.kept), 'client')
    title += f', and with what {number} kept in this run'
  if how:
    steps = wording.count(how.steps, 'local step')
    title += (
      f', and after {steps} of each (--personalize_part={how.part}, class rows that'
      f' it has: {_class_rows(found)})'
    )
  print(textwrap.fill(f'{title}:', width))
  print(text_table.to_text(clients.table(frame), width=width), end='')
  if left := int(frame[clients.GLOBAL].isna().sum()):
    print(f'{wording.count(left, "client")} without such examples left out')


if __name__ == '__main__':
  # Flags are not defined at import, because other commands have flags with the same names.
  flags.DEFINE_string('run_dir', None, 'directory of the run to evaluate')
  settings.define_named_flags(
    encoder='network of the run, if it has the form MODULE:FUNCTION', **settings.MOVED
  )
  settings.define_cache_flag()
  settings.define_picture_flag()
  flags.DEFINE_string(
    'client',
    None,
    'id of the client whose examples the confusion matrix shows. Default: the client with the'
    ' most training examples, among the first hundred clients',
  )
  flags.DEFINE_bool('per_client', False, 'also score every client on its own held-out examples')
  flags.DEFINE_integer(
    'personalize',
    None,
    'like --per_client, and also score a personal model of each client. To get this model, the'
    ' client trains the global model for this number of local steps. Client optimizer, batch size'
    ' and loss are those of the run',
    lower_bound=0,
    upper_bound=hp.INT32_MAX,
  )
  flags.DEFINE_enum(
    'personalize_part',
    None,
    ['all', 'head', 'rows'],
    'weights that a client trains for --personalize. all: the weights that clients train in the'
    ' run; head: the class rows that the client receives; rows: the class rows of its own classes.'
    ' Default: all',
  )
  app.define_float(
    'personalize_learning_rate',
    None,
    "learning rate for --personalize; default: the run's --client_learning_rate",
    least=0.0,
    most=1e30,
  )
  settings.define_calibration_flags()
  app.run(main, __doc__, takes_arguments=False)
