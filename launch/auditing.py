"""What a server infers from requests and updates. Imports TensorFlow."""

import collections
import dataclasses
import pathlib
import textwrap
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import numpy as np
import pandas as pd
import scipy.sparse
import tensorflow as tf

from launch import trained
from tasks import experiment
from tff_xc import classifier
from tff_xc import errors
from tff_xc import files
from tff_xc import wording
from tff_xc.data import client_data
from tff_xc.data import sparse
from tff_xc.experiment import cohort
from tff_xc.measure import communication
from tff_xc.measure import leakage
from tff_xc.report import audit as report
from tff_xc.report import run_files
from tff_xc.report import text_table
from tff_xc.round import algorithm as algorithm_lib
from tff_xc.round import observed
from tff_xc.round import randomized
from tff_xc.round import randomness
from tff_xc.round import request as request_lib

# Clients whose updates are looked at, and examples whose losses are.
_UPDATES, _LOSSES = 20, 2000


class Settings(NamedTuple):
  """How clients are audited; see the flags of `launch.audit`."""

  clients: int = 50
  requests: int = 20
  clip: float | None = None
  noise: float | None = None
  negatives_renewed: float = 0.1
  request_epsilon: float = 3.0
  seeds: int = 1


class Subject(NamedTuple):
  """An algorithm on data, with the weights that its server sends."""

  dataset: client_data.FederatedDataset
  algorithm: algorithm_lib.Algorithm
  weights: classifier.ModelWeights
  seed: int
  rounds: int  # Done before.
  score: float = float('nan')  # The final value of `metric`, of a run.
  metric: str = ''

  @property
  def request(self):
    return self.algorithm.tables[0].request

  @property
  def schedule(self) -> str:
    """What its clients request, in a word."""
    request = self.request
    if not request.selects:
      return 'all rows'
    return request.schedule if request.negatives else 'own only'


def run(
  run_dirs: Sequence[str],
  config: Mapping[str, Any] | None,
  named: Mapping[str, str],
  output: str | None,
  settings: Settings,
) -> dict[str, pd.DataFrame]:
  """Audits runs, or a configuration without weights; prints and writes the results.

  `named`: as for `trained.restore`. Returns the frames of the CSV files by name.
  """
  where = pathlib.Path(
    output or (pathlib.Path(run_dirs[0]) / 'audit' if run_dirs else 'audits')
  )
  if where.exists() and not where.is_dir():
    raise errors.InputError(f'--output={where} is a file; name a directory')
  requests, updates, costs, first, by_seed = [], [], [], None, {}
  for subject in _subjects(run_dirs, config, named, settings.seeds):
    first = first or subject
    by_seed.setdefault(subject.seed, subject)
    if subject.metric != first.metric or (
      subject.dataset.num_classes != first.dataset.num_classes
    ):
      raise errors.InputError(
        '--run_dir names runs of several tasks; give runs of one'
      )
    requests.append(_requests(subject, settings))
    updates.append(_updates(subject, settings))
    costs.append({'schedule': subject.schedule, 'score': subject.score})
  seen = {cost['schedule'] for cost in costs}
  for subject in by_seed.values():
    for other in _other_schedules(subject, seen, settings):
      requests.append(_requests(other, settings))
  # Runs of successive seeds share seeds of the audit, and requests need no weights.
  of_requests = pd.concat(requests).drop_duplicates(ignore_index=True)
  frames = {
    'requests': of_requests,
    'updates': pd.concat(updates, ignore_index=True),
  }
  frames['audit'] = report.of_schedules(frames['requests'], pd.DataFrame(costs))
  _show(frames, first, settings)
  with files.writing(where, 'name another --output'):
    where.mkdir(parents=True, exist_ok=True)
    for name, frame in frames.items():
      with files.replacing(where / f'{name}.csv') as temporary:
        frame.to_csv(temporary, index=False)
    report.plot(frames, where / 'audit.png', first.metric)
  print(f'written to {where}: requests.csv, audit.csv, updates.csv, audit.png')
  return frames


def _subjects(run_dirs, config, named, seeds: int) -> Iterator[Subject]:
  if config is not None:
    experiment.install_runtime(config)
    made = experiment.assemble(config)
    for seed in range(config['seed'], config['seed'] + seeds):
      weights = made.algorithm.model.init(_pair(seed))
      of_seed = Subject(made.dataset, made.algorithm, weights, seed, 0)
      yield _with_clients(of_seed)
  for run_dir in run_dirs:
    found, told = trained.restore(run_dir, named), run_files.read_run(run_dir)
    metric = found.evaluator.metrics[0]
    score = ((told.summary or {}).get('final') or {}).get(metric)
    subject = _with_clients(
      Subject(
        found.dataset,
        found.algorithm,
        found.weights,
        told.seed,
        found.rounds,
        float('nan') if score is None else score,
        metric,
      )
    )
    yield subject
    for more in range(1, seeds):  # Its score is that of one run.
      yield subject._replace(seed=told.seed + more, score=float('nan'))


def _with_clients(subject: Subject) -> Subject:
  if not subject.algorithm.has_clients:
    raise errors.InputError(
      'training without clients sends nothing that could be audited; give an'
      ' algorithm with clients'
    )
  return subject


def _pair(seed: int) -> tf.Tensor:
  return tf.constant([seed & 0x7FFFFFFF, (seed >> 31) & 0x7FFFFFFF], tf.int32)


def _other_schedules(
  subject: Subject, seen: set[str], settings: Settings
) -> Iterator[Subject]:
  """Yields the subject with the schedules of which there is none."""
  request, table = subject.request, subject.algorithm.tables[0]
  of_one = not subject.algorithm.model.label_sets
  if not seen <= {*request_lib.SCHEDULES} or not of_one:
    return
  shared = {
    name: getattr(request, name)
    for name in ('num_rows', 'max_positives', 'negatives', 'secret')
  }
  for schedule in request_lib.SCHEDULES:
    if schedule in seen:
      continue
    if schedule == request_lib.RANDOMIZED:
      made = randomized.Randomized(
        **shared,
        renewed=settings.negatives_renewed,
        epsilon=settings.request_epsilon,
      )
    else:
      made = request_lib.OwnAndSampled(
        **shared,
        equal_negatives=request.equal_negatives,
        schedule=schedule,
        renewed=settings.negatives_renewed,
      )
    changed = dataclasses.replace(table, request=made)
    yield subject._replace(
      algorithm=subject.algorithm.with_table(changed), score=float('nan')
    )


def _drawn(subject: Subject, most: int) -> list[int]:
  """Returns the clients that are audited, drawn among those with examples."""
  sizes = subject.dataset.train.partition.sizes
  some = np.flatnonzero(sizes)
  random = np.random.default_rng(subject.seed)
  return sorted(random.choice(some, min(most, len(some)), replace=False))


def _gap(subject: Subject) -> int:
  """Returns after how many rounds a client takes part again, in the mean."""
  each = _attribute(subject.algorithm.sampling, 'clients_per_round') or 1
  return max(1, round(len(subject.dataset.train.partition) / each))


def _attribute(sampling, name: str):
  """Returns an attribute of a sampling, or of the one in it."""
  while sampling is not None:
    if (found := getattr(sampling, name, None)) is not None:
      return found
    sampling = getattr(sampling, 'sampling', None)
  return None


def _labels(train, client: int) -> np.ndarray:
  y = train.pool.y[train.partition.of_client(client)]
  return y.indices if scipy.sparse.issparse(y) else y


def _requests(subject: Subject, settings: Settings) -> pd.DataFrame:
  """Returns what requests tell: a line for each number of requests seen.

  Of class rows, where clients select some, and of sparse text's features.
  """
  told = collections.defaultdict(list)
  model, request = subject.algorithm.model, subject.request
  train, gap = subject.dataset.train, _gap(subject)
  clients = _drawn(subject, settings.clients)
  sizes = communication.messages(subject.algorithm).tables[classifier.CLASS]
  run_seed = _pair(subject.seed)
  seed_of = tf.function(randomness.round_seed, autograph=False)
  seeds = [
    seed_of(run_seed, tf.constant(r * gap)) for r in range(settings.requests)
  ]
  rows_of = np.asarray(model.head.rows_of(tf.range(model.num_classes)))
  rows_of = rows_of.reshape([model.num_classes, -1])
  owners, labels = train.owned_labels()
  pairs = len(np.unique(owners.astype(np.int64) * model.num_classes + labels))
  # Of an average client; which of the classes is not known before.
  prior = pairs / len(train.partition) / model.num_classes
  ask = observed.build_requests(subject.algorithm)
  for client in clients if request.selects else ():
    own_labels = np.unique(_labels(train, client))
    if model.encoder.tied:  # The classes of its features, too.
      x = train.pool.read(train.partition.of_client(client))
      own_labels = np.union1d(own_labels, x.indices)
    own = np.isin(np.arange(model.num_classes), own_labels)
    own_rows = np.unique(rows_of[own_labels])
    asked = np.zeros([settings.requests, model.num_rows], bool)
    for i, seed in enumerate(seeds):
      ids = ask(own_labels.astype(np.int32), np.int64(client), seed)
      asked[i, ids.numpy()] = True
    if isinstance(request, randomized.Randomized):
      of_rows = leakage.of_randomized(
        asked, request.response.log_likelihoods, prior
      )
    else:
      of_rows = leakage.of_sampled(asked, len(own_rows))
    # A label of several rows is as likely as its least likely row.
    posterior = of_rows[:, rows_of].min(axis=2)
    for i in range(settings.requests):
      found = leakage.told(posterior[i], own)._asdict()
      found |= {'rows': asked[i].sum(), 'asked': asked[i, own_rows].mean()}
      told[i + 1].append(found)
  lines = []
  for count, found in told.items():
    frame = pd.DataFrame(found)
    epsilon = float('nan')
    if isinstance(request, randomized.Randomized):
      epsilon = request.response.epsilon(count)
    lines.append(
      {
        'seed': subject.seed,
        'schedule': subject.schedule,
        'requests': count,
        'rounds_between': gap,
        'auc': frame['auc'].mean(),
        'posterior': frame['posterior'].mean(),
        'known': frame['known'].mean(),
        'precision': frame['hits'].sum() / frame['above'].sum()
        if frame['above'].sum()
        else float('nan'),
        'epsilon': epsilon,
        'own_requested': frame['asked'].mean(),
        'rows': frame['rows'].mean(),
        'class_bytes': frame['rows'].mean() * (sizes.row_bytes + sizes.up),
      }
    )
  lines += _of_hash(subject, clients, rows_of)
  return pd.DataFrame(lines + _of_features(subject, clients, settings.requests))


def _of_hash(subject: Subject, clients, rows_of) -> list[dict[str, Any]]:
  """Returns what the buckets of several hash tables tell, if all own ones are known."""
  if rows_of.shape[1] == 1:
    return []
  found, train = [], subject.dataset.train
  for client in clients:
    own = np.isin(np.arange(len(rows_of)), _labels(train, client))
    seen = np.isin(np.arange(subject.algorithm.model.num_rows), rows_of[own])
    score = leakage.of_buckets(rows_of, seen)
    found.append(
      leakage.told(score, own)._asdict() | {'candidates': (score > 0).sum()}
    )
  frame = pd.DataFrame(found)
  return [
    {
      'seed': subject.seed,
      'schedule': f'own buckets, {wording.count(rows_of.shape[1], "table")}',
      'requests': 1,
      'rounds_between': _gap(subject),
      'auc': frame['auc'].mean(),
      'posterior': frame['posterior'].mean(),
      'known': frame['known'].mean(),
      'precision': frame['hits'].sum() / max(frame['above'].sum(), 1),
      'candidates': frame['candidates'].mean(),
    }
  ]


def _of_features(
  subject: Subject, clients, requests: int
) -> list[dict[str, Any]]:
  """Returns what requests of feature rows tell of a client's features.

  They are exact: of all features of a client's examples, those are known that the
  examples of a round had.
  """
  lines, train = [], subject.dataset.train
  each = max(
    _attribute(subject.algorithm.sampling, 'examples_per_round') or 0,
    _attribute(subject.algorithm.sampling, 'examples') or 0,
  )
  for table in subject.algorithm.tables[1:]:
    if not table.request.selects:
      continue
    keys = subject.algorithm.model.encoder.tables[table.name]
    known, rows = np.zeros([len(clients), requests]), []
    for place, client in enumerate(clients):
      held = train.partition.of_client(client)
      features = lambda some: np.unique(
        keys.ids(sparse.as_tensors(train.pool.examples(some)[0]))  # noqa: B023
      )
      every, seen = features(held), np.zeros(0, np.int64)
      random = np.random.default_rng([subject.seed, client])
      for r in range(requests):
        used = held
        if 0 < each < len(held):
          used = random.choice(held, each, replace=False)
        of_round = features(used)
        rows.append(len(of_round))
        seen = np.union1d(seen, of_round)
        known[place, r] = len(seen) / max(len(every), 1)
    for r in range(requests):
      lines.append(
        {
          'seed': subject.seed,
          'schedule': f'rows of {table.name}',
          'requests': r + 1,
          'rounds_between': _gap(subject),
          'auc': np.mean((1 + known[:, r]) / 2),
          'posterior': known[:, r].mean(),
          'known': known[:, r].mean(),
          'precision': 1.0,
          'own_requested': 1.0,
          'rows': np.mean(rows),
        }
      )
  return lines


def _updates(subject: Subject, settings: Settings) -> pd.DataFrame:
  """Returns what updates and losses tell: AUCs, means over clients."""
  algorithm, train = subject.algorithm, subject.dataset.train
  update = observed.build_update(algorithm)
  weights = tf.nest.map_structure(tf.convert_to_tensor, subject.weights)
  seed = randomness.round_seed(_pair(subject.seed), tf.constant(subject.rounds))
  random = np.random.default_rng(subject.seed)
  rows_of = np.asarray(
    algorithm.model.head.rows_of(tf.range(algorithm.model.num_classes))
  ).reshape([algorithm.model.num_classes, -1])
  table = weights.class_table.shape
  totals = collections.defaultdict(lambda: np.zeros(table))
  seen, any_own = np.zeros(table[0], bool), np.zeros(table[0], bool)
  found = collections.defaultdict(list)
  each = max(
    _attribute(algorithm.sampling, 'examples_per_round') or 0,
    _attribute(algorithm.sampling, 'examples') or 0,
  )

  def judge(what, moved, own):
    for how, score in (
      ('size', leakage.by_size),
      ('direction', leakage.by_direction),
    ):
      found[f'rows {what}', how].append(leakage.auc(score(moved), own))

  def judge_one(what, ids, moved, own):
    judge(what, moved, own)
    np.add.at(totals[what], ids, moved)

  for client in _drawn(subject, min(settings.clients, _UPDATES)):
    held = used = train.partition.of_client(client)
    if 0 < each < len(held):
      used = held[random.choice(len(held), each, replace=False)]
    value = cohort.client_value(train, used, client, held)
    sent = update(weights, value, seed)
    mask = sent.mask.numpy()
    ids, moved = sent.ids.numpy()[mask], sent.rows.numpy()[mask]
    trained = train.pool.y[used]
    if scipy.sparse.issparse(trained):
      trained = trained.indices
    own = np.isin(ids, rows_of[trained])
    judge_one('as sent', ids, moved, own)
    if settings.clip is not None:
      parts = [moved, *tf.nest.flatten((sent.encoder, sent.others))]
      moved = leakage.clipped([np.asarray(p) for p in parts], settings.clip)[0]
      judge_one(f'clipped to {settings.clip:g}', ids, moved, own)
    if settings.noise:
      scale = settings.noise * settings.clip
      moved = moved + random.normal(scale=scale, size=moved.shape)
      judge_one(f'with noise {settings.noise:g}', ids, moved, own)
    any_own[ids[own]] = seen[ids] = True
  count = len(found['rows as sent', 'size'])
  for what, total in totals.items():
    judge(f'{what}, summed over {count}', total[seen], any_own[seen])
  if (member := _membership(subject)) is not None:
    found['loss of members', 'loss'].append(member)
  return pd.DataFrame(
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
  )


def _membership(subject: Subject) -> float | None:
  """Returns the AUC by which a smaller loss tells training from test examples.

  None: the data have no test examples, or sets of labels.
  """
  model, data = subject.algorithm.model, subject.dataset
  train = data.train
  if model.label_sets or model.rows_per_label > 1:
    return None
  pool, held_out = data.test, None
  if data.held_out is not None and len(data.held_out.numbers):
    pool, held_out = train.pool, data.held_out.numbers
  if pool is None or scipy.sparse.issparse(pool.y):
    return None
  random = np.random.default_rng(subject.seed)
  embed = tf.function(model.embed, autograph=False, reduce_retracing=True)

  def losses(of, numbers):
    numbers = np.arange(len(of)) if numbers is None else numbers
    some = random.choice(numbers, min(_LOSSES, len(numbers)), replace=False)
    found = []
    for x, y in of.blocks(np.sort(some)):
      logits = model.logits(
        embed(subject.weights, sparse.as_tensors(x)),
        subject.weights.class_table,
        None,
      )
      found.append(
        tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits).numpy()
      )
    return np.concatenate(found)

  members, others = (
    losses(train.pool, train.partition.numbers),
    losses(pool, held_out),
  )
  is_member = np.arange(len(members) + len(others)) < len(members)
  return leakage.auc(-np.concatenate([members, others]), is_member)


def _show(frames, subject: Subject, settings: Settings) -> None:
  width = text_table.terminal_width()
  if len(frames['audit']):
    told = (
      f'requests of {wording.count(settings.clients, "client")} at most, each every'
      f' {wording.count(_gap(subject), "round")}; after 1 and {settings.requests}:'
    )
    print(textwrap.fill(told, width))
    rows = report.table(frames['audit'], subject.metric)
    print(text_table.to_text(rows, width=width), end='')
  else:
    print('clients receive all class rows: requests tell nothing')
  print('\nupdates: the AUC by which they tell own classes (1/2: not at all)')
  rows = report.table_of_updates(frames['updates'])
  print(text_table.to_text(rows, (0, 1), width), end='')
