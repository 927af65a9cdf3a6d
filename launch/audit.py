"""Measures what a curious server can infer about a client's classes from its messages.

  python -m launch.audit --run_dir=runs/a,runs/b --output=audits/omniglot
  python -m launch.audit --task=glyphs --algorithm=fedss --negatives=20

The first command audits trained runs of one task. The second command audits an algorithm with
initial weights, and takes the flags of launch.train. Both commands print tables and write
requests.csv, audit.csv, updates.csv and audit.png.

Requests: the audit assumes that the server knows the algorithm and its settings, but not the
clients' random numbers. (In a simulation, the server knows these numbers; see
--request_randomness.) After each request of a client, the server computes by Bayes' rule the
posterior probability that a class belongs to the client. If all runs sample negatives for single
labels, the audit also covers the other values of --negatives_schedule. AUC is the area under the
ROC curve of this posterior over all classes. The server "knows" a class if its posterior is above
1/2. With N clients in all and K clients per round, a client sends a request every N / K rounds.

Updates: a client's update changes the class rows of the client's own classes and other class
rows. One AUC measures how well the size of a row's change separates the own classes from the
other classes. Another AUC compares the direction of a row's change with the directions of all
other rows' changes. The audit also measures both AUCs on the sum of all audited updates. The
audit uses updates before --dp, --compression, --message_precision, --secure_sums, clipping or
an --attack changes them.

Membership: an AUC measures how well the loss separates training examples from test examples.
"""

from __future__ import annotations

import collections
import dataclasses
import pathlib
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from absl import flags

from launch import app, settings as settings_lib
from tasks import configuration, experiment
from tff_xc import errors, files, wording
from tff_xc.algorithms import registry as algorithms
from tff_xc.experiment import same_run
from tff_xc.lazy import Lazy, np, pd, tf
from tff_xc.measure import communication
from tff_xc.report import audit as report, run_files, text_table
from tff_xc.round import randomness

if TYPE_CHECKING:
  from tff_xc import classifier
  from tff_xc.data import client_data
  from tff_xc.round import algorithm as algorithm_lib

leakage = Lazy('tff_xc.measure.leakage')
losses = Lazy('tff_xc.round.losses')
sparse = Lazy('tff_xc.data.sparse')

# Settings of single schedules, which a user may give without their schedule.
_OF_SCHEDULES = ('negatives_renewed', 'request_epsilon')
# Settings in which the runs of a schedule may differ.
_OF_RUNS = (
  'seed',
  'runtime',
  'device',
  'data',
  'eval_every',
  'evaluate_clients',
  'more_metrics',
  'start_from',
  same_run.STARTED,
)
# The audit uses the updates of at most _UPDATES clients, and the losses of at most _LOSSES training
# examples and as many test examples.
_UPDATES, _LOSSES = 20, 2000


def main(arguments) -> None:
  values, changes = flags.FLAGS, settings_lib.changes()
  if values.update_noise and values.update_clip is None:
    raise errors.InputError(
      '--update_noise is a multiple of --update_clip; give --update_clip, too'
    )
  known = settings_lib.parameters()
  of_schedules = {n: known[n].checked(changes[n]) for n in _OF_SCHEDULES if n in changes}
  config = None
  if values.run_dir:
    why = 'is that of the runs in --run_dir; leave one of both out'
    settings_lib.refuse(('task', 'algorithm'), why)
    settings_lib.refuse(
      changes.keys() - {'encoder', *configuration.DATA_FILES, *_OF_SCHEDULES}, why
    )
  else:
    config = _config()
  run(
    values.run_dir,
    config,
    settings_lib.named(),
    values.output,
    Settings(
      values.audit_clients,
      values.audit_requests,
      values.update_clip,
      values.update_noise,
      seeds=values.audit_seeds,
      **of_schedules,
    ),
  )


def _config() -> dict[str, Any]:
  """Returns the configuration that the flags give.

  The audit covers all schedules, so it accepts the flags of every schedule.
  """
  task, algorithm, changes = settings_lib.given()
  rest = {n: v for n, v in changes.items() if n not in _OF_SCHEDULES}
  applies = configuration.resolve(task, algorithm, rest)['hyperparameters']
  unused = {*algorithms.get(algorithm).names} - {*applies}
  for name in unused & {*_OF_SCHEDULES} & {*changes}:
    del changes[name]
  return configuration.resolve(task, algorithm, changes)


class Settings(NamedTuple):
  """The settings of an audit. Each of them is a flag of `launch.audit`."""

  clients: int = 50
  requests: int = 20
  clip: float | None = None
  noise: float | None = None
  negatives_renewed: float = 0.1
  request_epsilon: float = 3.0
  seeds: int = 1


class Subject(NamedTuple):
  """An algorithm with data, and the weights that its server sends to clients."""

  dataset: client_data.FederatedDataset
  algorithm: algorithm_lib.Algorithm
  weights: classifier.ModelWeights
  config: Mapping[str, Any]  # Settings, options and hyper-parameters by name.
  seed: int
  rounds: int = 0  # The number of rounds that trained `weights`.
  score: float = float('nan')  # The final value of `metric` in the run.
  metric: str = ''

  @property
  def request(self):
    return self.algorithm.tables[0].request

  @property
  def schedule(self) -> str:
    """The name of the schedule by which clients request rows."""
    request = self.request
    if not request.selects:
      return 'all rows'
    return request.schedule if request.negatives else 'own only'

  @property
  def gap(self) -> int:
    """The mean number of rounds until a client participates again."""
    each = self.config['clients_per_round']
    return max(1, round(len(self.dataset.train.partition) / each))

  @property
  def rows_of_labels(self) -> np.ndarray:
    """The ids of the class rows of each label, int [n, rows per label]."""
    model = self.algorithm.model
    rows = np.asarray(model.head.rows_of(tf.range(model.num_classes)))
    return rows.reshape([model.num_classes, -1])

  def clients(self, most: int) -> list[int]:
    """Draws at most `most` clients that have examples; returns their sorted numbers."""
    some = np.flatnonzero(self.dataset.train.partition.sizes)
    random = np.random.default_rng(self.seed)
    return sorted(random.choice(some, min(most, len(some)), replace=False))

  def own_classes(self, numbers: np.ndarray) -> np.ndarray:
    """Returns the distinct labels of the examples `numbers`.

    If items are both features and classes (--tie_items), the items in the features count, too.
    """
    pool = self.dataset.train.pool
    labels = pool.labels[numbers]
    own = getattr(labels, 'indices', labels)  # Label sets are a sparse matrix.
    if self.algorithm.model.encoder.tied:
      own = np.append(own, pool.read(numbers).indices)
    return np.unique(own)

  def drawn(self, held: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Draws the examples that a client uses in a round, from all its examples `held`."""
    each = self.config.get('virtual_client_size') or self.config.get('examples_per_round', 0)
    if 0 < each < len(held):
      return random.choice(held, each, replace=False)
    return held


def run(
  run_dirs: Sequence[str],
  config: Mapping[str, Any] | None,
  named: Mapping[str, str],
  output: str | None,
  settings: Settings,
) -> dict[str, pd.DataFrame]:
  """Audits runs or a configuration with initial weights; prints and writes the results.

  `trained.restore` describes `named`. Returns the frames of the CSV files by name.
  """
  where = pathlib.Path(output or (pathlib.Path(run_dirs[0]) / 'audit' if run_dirs else 'audits'))
  requests, updates, costs, by_seed, configs = [], [], [], {}, {}
  for subject in _subjects(run_dirs, config, named, settings.seeds):
    if not subject.algorithm.has_clients:
      raise errors.InputError(
        'training without clients sends nothing that could be audited; give an algorithm'
        ' with clients'
      )
    if not losses.trains_rows(subject.algorithm.loss):
      raise errors.InputError(
        'clients of fedproto send mean embeddings of exactly their classes, so there is nothing to'
        ' measure; give another algorithm'
      )
    by_seed.setdefault(subject.seed, subject)
    first = next(iter(by_seed.values()))
    if (subject.metric, subject.dataset.num_classes) != (first.metric, first.dataset.num_classes):
      raise errors.InputError('--run_dir names runs of several tasks; give runs of one task')
    found = _settings(subject.config)
    if told := same_run.differences(configs.setdefault(subject.schedule, found), found):
      raise errors.InputError(
        f'--run_dir names runs of the schedule "{subject.schedule}" that differ by more than their'
        f' seeds: {told}; audit them one after the other'
      )
    requests += _requests(subject, settings)
    updates += _updates(subject, settings)
    costs.append({'schedule': subject.schedule, 'score': subject.score})
  seen = {cost['schedule'] for cost in costs}
  for subject in by_seed.values():
    for other in _other_schedules(subject, seen, settings):
      requests += _requests(other, settings)
  # With --audit_seeds, two runs may audit the same seed. Requests do not depend on weights, so the
  # lines of the two audits are equal.
  of_requests = pd.DataFrame(requests).drop_duplicates(ignore_index=True)
  frames = {
    'requests': of_requests,
    'updates': pd.DataFrame(updates),
    'audit': report.of_schedules(of_requests, pd.DataFrame(costs)),
  }
  _show(frames, first, settings)
  with files.folder(where):
    for name, frame in frames.items():
      with files.replacing(where / f'{name}.csv') as temporary:
        frame.to_csv(temporary, index=False)
    report.plot(frames, where / 'audit.png', first.metric)
  print(f'written to {where}: requests.csv, audit.csv, updates.csv, audit.png')
  return frames


def _settings(config: Mapping[str, Any]) -> dict[str, Any]:
  """Returns the settings that are equal in all runs of a schedule."""
  left_out = {*run_files.NOT_CONFIGURATION, *_OF_RUNS, 'options', 'hyperparameters'}
  return {name: value for name, value in config.items() if name not in left_out}


def _show(frames: Mapping[str, pd.DataFrame], subject: Subject, settings: Settings) -> None:
  width = text_table.terminal_width()
  if len(frames['audit']):
    told = (
      f'requests of {wording.count(settings.clients, "client")} at most, each every'
      f' {wording.count(subject.gap, "round")}; after 1 and {settings.requests}:'
    )
    print(textwrap.fill(told, width))
    rows = report.table(frames['audit'], subject.metric)
    print(text_table.to_text(rows, width=width), end='')
  else:
    print('clients receive all class rows, so requests reveal nothing')
  print('\nupdates: the AUC with which they reveal the classes of a client (1/2: not at all)')
  rows = report.table_of_updates(frames['updates'])
  print(text_table.to_text(rows, (0, 1), width), end='')


# -- subjects of the audit --


def _subjects(run_dirs, config, named, seeds: int) -> Iterator[Subject]:
  from launch import trained

  if config is not None:
    experiment.install_runtime(config)
    made = experiment.assemble(config)
    for seed in range(config['seed'], config['seed'] + seeds):
      weights = made.algorithm.model.init(np.int32(randomness.pair(seed)))
      yield Subject(made.dataset, made.algorithm, weights, run_files.flat(made.config), seed)
  for run_dir in run_dirs:
    found, told = trained.restore(run_dir, named), run_files.read_run(run_dir)
    metric = found.evaluator.metrics[0]
    score = ((told.summary or {}).get('final') or {}).get(metric)
    subject = Subject(
      dataset=found.dataset,
      algorithm=found.algorithm,
      weights=found.weights,
      config=run_files.flat(told.config),
      seed=told.seed,
      rounds=found.rounds,
      score=float('nan') if score is None else score,
      metric=metric,
    )
    yield subject
    for more in range(1, seeds):  # The score of a run applies to the run's own seed only.
      yield subject._replace(seed=told.seed + more, score=float('nan'))


def _other_schedules(subject: Subject, seen: set[str], settings: Settings) -> Iterator[Subject]:
  """Yields the subject with each schedule that is not in `seen`."""
  from tff_xc.round import randomized, request as request_lib

  request, table = subject.request, subject.algorithm.tables[0]
  if not seen <= {*request_lib.SCHEDULES} or subject.algorithm.model.label_sets:
    return
  shared = {
    name: getattr(request, name) for name in ('num_rows', 'max_positives', 'negatives', 'secret')
  }
  shared['renewed'] = settings.negatives_renewed
  for schedule in request_lib.SCHEDULES:
    if schedule in seen:
      continue
    if schedule == request_lib.RANDOMIZED:
      made = randomized.Randomized(**shared, epsilon=settings.request_epsilon)
    else:
      equal = request.equal_negatives
      made = request_lib.OwnAndSampled(**shared, equal_negatives=equal, schedule=schedule)
    changed = dataclasses.replace(table, request=made)
    yield subject._replace(algorithm=subject.algorithm.with_table(changed), score=float('nan'))


# -- requests --


def _requests(subject: Subject, settings: Settings) -> list[dict[str, Any]]:
  """Returns how much requests reveal, with a line for each number of requests.

  Clients that select class rows request these rows. With sparse text, clients also request
  the rows of their features.
  """
  clients = subject.clients(settings.clients)
  return [
    *_of_class_rows(subject, clients, settings.requests),
    *_of_hash(subject, clients),
    *_of_features(subject, clients, settings.requests),
  ]


def _lines(
  subject: Subject, schedule: str, told: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
  """Returns a line for each number of requests, with means over clients.

  `told` has the values for each client and each number of requests.
  """
  found = pd.DataFrame(told).groupby('requests').mean().reset_index()
  if 'hits' in found:
    found['precision'] = found.pop('hits') / found.pop('above').replace(0, np.nan)
  about = {'seed': subject.seed, 'schedule': schedule, 'rounds_between': subject.gap}
  return [about | line for line in found.to_dict('records')]


def _of_class_rows(
  subject: Subject, clients: Sequence[int], count: int
) -> Iterator[dict[str, Any]]:
  """Yields how much the first requests for class rows reveal, for 1 to `count` requests."""
  from tff_xc.round import observed, randomized

  model, request = subject.algorithm.model, subject.request
  if not request.selects:
    return
  train, rows_of = subject.dataset.train, subject.rows_of_labels
  is_randomized = isinstance(request, randomized.Randomized)
  sizes = communication.messages(subject.algorithm).tables['class']
  seed_of = tf.function(randomness.round_seed, autograph=False)
  run_seed = np.int32(randomness.pair(subject.seed))
  seeds = [seed_of(run_seed, tf.constant(r * subject.gap)) for r in range(count)]
  owners, labels = train.owned_labels()
  if model.encoder.tied:  # The items in the features also count as classes.
    x = train.pool.read(train.partition.numbers)
    of_entries = np.repeat(train.partition.owners(), np.diff(x.indptr))
    owners = np.append(owners, of_entries)
    labels = np.append(labels, x.indices)
  pairs = len(np.unique(owners.astype(np.int64) * model.num_classes + labels))
  # The prior probability that a class belongs to a client. It is the same for all classes.
  prior = pairs / len(train.partition) / model.num_classes
  ask = observed.build_requests(subject.algorithm)
  told = []
  for client in clients:
    held = train.partition.of_client(client)
    own_labels = subject.own_classes(held)
    own = np.isin(np.arange(model.num_classes), own_labels)
    own_rows = np.unique(rows_of[own_labels])
    asked = np.zeros([count, model.num_rows], bool)
    for i, seed in enumerate(seeds):
      ids = ask(own_labels.astype(np.int32), np.int64(client), seed)
      asked[i, ids.numpy()] = True
    if is_randomized:
      likelihoods = request.response.log_likelihoods
      of_rows = leakage.of_randomized(asked, likelihoods, prior)
    else:
      of_rows = leakage.of_sampled(asked, len(own_rows))
    # A label with several rows has the posterior of its least likely row.
    posterior = of_rows[:, rows_of].min(axis=2)
    for i, rows in enumerate(asked):
      found = leakage.told(posterior[i], own)._asdict()
      found |= {'requests': i + 1, 'own_requested': rows[own_rows].mean(), 'rows': rows.sum()}
      told.append(found)
  for line in _lines(subject, subject.schedule, told):
    epsilon = request.response.epsilon(line['requests']) if is_randomized else float('nan')
    yield line | {
      'epsilon': epsilon,
      'class_bytes': line['rows'] * (sizes.down + sizes.up),
    }


def _of_hash(subject: Subject, clients: Sequence[int]) -> Iterator[dict[str, Any]]:
  """Yields how much the server learns if it knows a client's buckets in all hash tables."""

  rows_of = subject.rows_of_labels
  if not subject.algorithm.model.shares_rows:
    return
  told = []
  for client in clients:
    held = subject.dataset.train.partition.of_client(client)
    own = np.isin(np.arange(len(rows_of)), subject.own_classes(held))
    seen = np.isin(np.arange(subject.algorithm.model.num_rows), rows_of[own])
    score = leakage.of_buckets(rows_of, seen)
    found = {'requests': 1, 'candidates': (score > 0).sum()}
    told.append(leakage.told(score, own)._asdict() | found)
  schedule = f'own buckets, {wording.count(rows_of.shape[1], "table")}'
  yield from _lines(subject, schedule, told)


def _of_features(subject: Subject, clients: Sequence[int], count: int) -> Iterator[dict[str, Any]]:
  """Yields how much requests for feature rows reveal about a client's features.

  A client requests exactly the features of the examples that it uses in a round, so the server
  learns all these features.
  """

  train = subject.dataset.train
  for table in subject.algorithm.tables[1:]:
    if not table.request.selects:
      continue
    keys = subject.algorithm.model.encoder.tables[table.name]
    told = []
    for client in clients:
      random = np.random.default_rng([subject.seed, client])
      held, seen = train.partition.of_client(client), np.zeros(0, np.int64)
      # All examples of the client, and then its examples in each round.
      used = [held, *(subject.drawn(held, random) for _ in range(count))]
      every, *of_rounds = (
        np.unique(keys.ids(sparse.as_tensors(train.pool.examples(some)[0]))) for some in used
      )
      for number, of_round in enumerate(of_rounds, 1):
        seen = np.union1d(seen, of_round)
        known = len(seen) / max(len(every), 1)
        found = {'requests': number, 'auc': (1 + known) / 2, 'posterior': known, 'known': known}
        found |= {'precision': 1.0, 'own_requested': 1.0, 'rows': len(of_round)}
        told.append(found)
    yield from _lines(subject, f'rows of {table.name}', told)


# -- updates --


def _updates(subject: Subject, settings: Settings) -> list[dict[str, Any]]:
  """Returns how much updates and losses reveal, as means of AUCs over clients."""
  from tff_xc.round import cohort, observed

  train, rows_of = subject.dataset.train, subject.rows_of_labels
  update = observed.build_update(subject.algorithm)
  weights = tf.nest.map_structure(tf.convert_to_tensor, subject.weights)
  seed = randomness.round_seed(np.int32(randomness.pair(subject.seed)), tf.constant(subject.rounds))
  random = np.random.default_rng(subject.seed)
  table = weights.class_table.shape
  totals = collections.defaultdict(lambda: np.zeros(table))
  seen, any_own = np.zeros(table[0], bool), np.zeros(table[0], bool)
  found = collections.defaultdict(list)

  def judge(what, moved, own):
    by_size, by_direction = leakage.by_size(moved), leakage.by_direction(moved)
    found[what, 'size'].append(leakage.auc(by_size, own))
    found[what, 'direction'].append(leakage.auc(by_direction, own))

  for client in subject.clients(min(settings.clients, _UPDATES)):
    held = train.partition.of_client(client)
    used = subject.drawn(held, random)
    sent = update(weights, cohort.client_value(train, used, client, held), seed)
    mask = sent.mask.numpy()
    ids, moved = sent.ids.numpy()[mask], sent.rows.numpy()[mask]
    versions = {'rows as sent': moved}
    if settings.clip is not None:
      parts = [moved, *tf.nest.flatten((sent.encoder, sent.others))]
      moved = leakage.clipped([np.asarray(p) for p in parts], settings.clip)[0]
      versions[f'rows clipped to {settings.clip:g}'] = moved
    if settings.noise:
      scale = settings.noise * settings.clip
      moved = moved + random.normal(scale=scale, size=moved.shape)
      versions[f'rows with noise {settings.noise:g}'] = moved
    own = np.isin(ids, rows_of[subject.own_classes(used)])
    for what, rows in versions.items():
      judge(what, rows, own)
      np.add.at(totals[what], ids, rows)
    any_own[ids[own]] = seen[ids] = True
  count = len(found['rows as sent', 'size'])
  for what, total in totals.items():
    judge(f'{what}, summed over {count}', total[seen], any_own[seen])
  if (member := _membership(subject)) is not None:
    found['loss of members', 'loss'].append(member)
  return [
    {
      'seed': subject.seed,
      'schedule': subject.schedule,
      'rounds': subject.rounds,
      'seen': what,
      'by': how,
      'auc': float(np.mean([v for v in values if not np.isnan(v)] or [np.nan])),
      'clients': len(values),
    }
    for (what, how), values in found.items()
  ]


def _membership(subject: Subject) -> float | None:
  """Returns the AUC with which a smaller loss separates training from test examples.

  Returns None if the data have no test examples, if examples have label sets, or if a label has
  several class rows.
  """

  model, weights = subject.algorithm.model, subject.weights
  train, pool = subject.dataset.train, subject.dataset.test
  others, held_out = np.arange(0 if pool is None else len(pool)), subject.dataset.held_out
  if held_out is not None and len(held_out.numbers):
    pool, others = train.pool, held_out.numbers
  if not len(others) or hasattr(pool.labels, 'indices') or model.shares_rows:
    return None
  random = np.random.default_rng(subject.seed)
  embed = tf.function(model.embed, autograph=False, reduce_retracing=True)
  of_examples, is_member = [], []
  for of, numbers in ((train.pool, train.partition.numbers), (pool, others)):
    some = random.choice(numbers, min(_LOSSES, len(numbers)), replace=False)
    for x, y in of.blocks(np.sort(some)):
      embeddings = embed(weights, sparse.as_tensors(x))
      logits = model.logits(embeddings, weights.class_table, None)
      of_examples.append(tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits))
    is_member += [numbers is train.partition.numbers] * len(some)
  return leakage.auc(-np.concatenate(of_examples), np.array(is_member))


if __name__ == '__main__':
  # Flags are not defined at import, because other commands have flags with the same names.
  flags.DEFINE_list('run_dir', [], 'run directories to audit, separated by commas')
  flags.DEFINE_string(
    'output',
    None,
    "directory for the results. Default: the folder 'audit' in the first --run_dir; without"
    " --run_dir, the folder 'audits'",
  )
  flags.DEFINE_integer(
    'audit_clients', 50, 'number of clients to audit, drawn with the seed', 1, 10_000
  )
  flags.DEFINE_integer(
    'audit_requests', 20, 'number of requests that each client sends to the server', 1, 1000
  )
  flags.DEFINE_integer(
    'audit_seeds',
    1,
    "number of times to repeat the audit, with seeds that count up from the run's seed. Each"
    ' seed draws other clients and requests; the weights of a trained run stay the same',
    1,
    100,
  )
  app.define_float(
    'update_clip', None, 'also audit updates that are clipped to this L2 norm', 1e-30, 1e30
  )
  app.define_float(
    'update_noise',
    None,
    'also audit clipped updates to which each client adds Gaussian noise. The standard deviation'
    ' of the noise is this value times --update_clip',
    0,
    1e6,
  )
  settings_lib.define_experiment_flags()
  app.run(main, __doc__, settings_lib.narrow_help, takes_arguments=False)
