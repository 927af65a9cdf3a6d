"""Compares FedMLH's lemmas, theorems and figure 2 with the labels of a task."""

import functools
import json
import pathlib
import types
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import numpy as np

from launch.reproduction import rows as rows_lib
from launch.reproduction import studies
from tasks import experiment
from tasks import registry as tasks
from tasks.papers import fedmlh
from tff_xc.algorithms import base
from tff_xc.report import pictures

_SMALL = 'sparse-words-eurlex-sets'
_FLAGS = {
  *('data_dir', 'hash_tables', 'hash_buckets', 'num_classes'),
  *('num_features', 'num_clients', 'partition_rule', 'validation'),
  *('published_reading', 'data_seed'),
}
# The probability of a total collision that Lemma 2 is asked to allow.
_FAILURE = 0.05
# Hash functions over which Lemma 1's expectation is taken.
_DRAWS = 1000
# How many times as many buckets: each is a part of one of the first, which is its
# number modulo theirs.
_FINER = 1, 2, 4
# Theorem 1: positives of which centroids are drawn so often, the most of a population,
# and the most labels whose centroids are.
_POSITIVES = 2, 4, 8, 16, 32, 64
_CENTROIDS, _MOST_ROWS, _MOST_CENTROIDS = 200, 5000, 20
# The line in figure 2 (b).
_RARE = 1e-4
# Labels that are drawn on clients.
_MOST_LABELS = 10
# More labels are not told apart in a panel.
_MOST_DOTS = 2000
_MOST_TICKS = 20
# Rounding of divergences, in nats.
_SAME = 1e-9
_OF_LABELS, _OF_BUCKETS, _LEMMA = (
  style['color'] for style, _ in zip(pictures.styles(), range(3), strict=False)
)


def resolve(name: str, request) -> tuple[dict[str, Any], ...]:
  """Returns a task's settings, or those of the paper's; see `studies`."""
  scale, task, given = request.scale, request.task, request.given
  rows_lib.refuse(name, set(given) - _FLAGS)
  if task is None and scale == 'paper':
    wanted = [each.task for each in fedmlh.CONFIGURATIONS]
  else:
    wanted = [task or _SMALL]
  fitting = [
    task.name for task in tasks.TASKS.values() if base.ONE_LABEL in task.lacks
  ]
  if not set(wanted) <= set(fitting):
    told = f'--task={task}: {name} is of tasks whose examples keep all labels:'
    raise rows_lib.Unused('task', f'{told} {", ".join(fitting)}')
  return tuple(experiment.resolve(each, 'fedmlh', given) for each in wanted)


def measure(
  config: Sequence[Mapping[str, Any]], folder: pathlib.Path
) -> list[dict[str, Any]]:
  """Returns the comparison on the tasks that are there, with a picture for each."""
  hint = (
    ', or give another task whose examples keep all labels, such as'
    ' --task=sparse-words-sets'
  )
  why, lines = studies.lacking(config, hint), []
  for each in config:
    task = each['task']
    if why[task]:
      lines.append(studies.missing(task))
      continue
    found = _theory(json.dumps(each, sort_keys=True))
    title = (
      f'FedMLH on {task}: {len(found.label_counts):,} labels,'
      f' {found.num_tables} tables of {found.num_buckets:,} buckets'
    )
    name = f'{task}.png' if len(config) > 1 else 'result.png'
    _plot(found, title, folder / name)
    lines += [
      studies.value(name, value, task=task)
      for name, value in _values(found).items()
    ]
  return lines


@functools.lru_cache(maxsize=len(fedmlh.CONFIGURATIONS))
def _theory(config: str) -> types.SimpleNamespace:
  """Measures a configuration, as JSON; once for the results of one command."""
  config = json.loads(config)
  load = tasks.get(config['task']).load
  dataset, _ = load(config['data_dir'], config['options'])
  values = config['hyperparameters']
  return theory(dataset, values['hash_tables'], values['hash_buckets'])


def theory(dataset, num_tables: int, num_buckets: int) -> types.SimpleNamespace:
  """Returns what the lemmas and the theorem say of label sets, and what is so.

  It takes memory for K n numbers: K clients, n labels; there are R tables.
  """
  from tff_xc.data import hashing
  from tff_xc.measure import hashed_labels
  from tff_xc.measure import ranking

  train, known, n = dataset.train, dataset.propensity, dataset.num_classes
  owners, owned = train.owned_labels()
  clients = len(train.client_ids)
  counts = np.bincount(owners * n + owned, minlength=clients * n)
  counts = counts.reshape(clients, n)
  others = ~np.eye(clients, dtype=bool)
  divergences = lambda each: hashed_labels.divergences(each)[others]
  observed, of_buckets, of_tables = [], [], []
  for seed in range(num_tables):
    buckets = hashing.buckets(np.arange(n), seed, num_buckets)
    of_bucket = hashed_labels.bucket_examples(train.pool.y, seed, num_buckets)
    observed.append(of_bucket[buckets])
    finer = (
      hashed_labels.bucket_counts(counts, seed, times * num_buckets)
      for times in _FINER
    )
    of_buckets.append([divergences(each) for each in finer])
    joint = hashed_labels.joint_buckets(n, seed + 1, num_buckets)
    of_tables.append(
      divergences(hashed_labels.group_counts(counts, joint, joint.max() + 1))
    )
  is_frequent = ranking.frequent(known)
  by_positives, apart = _centroids(train.pool, is_frequent, num_buckets)
  return types.SimpleNamespace(
    num_tables=num_tables,
    num_buckets=num_buckets,
    num_examples=known.num_examples,
    label_counts=known.label_counts,  # [n], training examples with each label.
    is_frequent=is_frequent,
    # Of each label's bucket, [n] and in each table [R, n]; once: an example counts
    # once a bucket, else once a label.
    expected=hashed_labels.expected_positives(known.label_counts, num_buckets),
    least=hashed_labels.least_positives(known.label_counts, num_buckets),
    once=hashed_labels.expected_examples(train.pool.y, num_buckets),
    observed=np.stack(observed),
    # Of infrequent labels' buckets, the mean under each of many hash functions.
    drawn=hashed_labels.drawn_positives(
      known.label_counts, ~is_frequent, num_buckets, _DRAWS
    )
    if not is_frequent.all()
    else np.zeros(1),
    # Errors of frequent labels' centroids by _POSITIVES, and of infrequent labels' over
    # their buckets', over what the positives of both say.
    by_positives=by_positives,
    apart=apart,
    client_counts=counts,  # [K, n]
    # Divergences of two clients: over labels [R K (K - 1)], over the buckets of each
    # table and finer ones [3, R K (K - 1)], of the first tables together [R, K (K - 1)].
    of_labels=np.tile(divergences(counts), num_tables),
    of_buckets=np.concatenate(of_buckets, axis=1),
    of_tables=np.stack(of_tables),
  )


def _centroids(pool, is_frequent, num_buckets: int):
  """Returns (errors [_POSITIVES], [labels]) of Theorem 1, see `theory`."""
  from tff_xc.data import hashing
  from tff_xc.measure import hashed_labels

  random, by_label = np.random.default_rng(0), pool.y.tocsc()
  buckets = hashing.buckets(np.arange(len(is_frequent)), 0, num_buckets)

  def errors(labels, positives):
    """Of the examples with any of the labels; `positives`: None for their number."""
    rows = np.unique(by_label[:, labels].indices)
    some = random.choice(rows, min(len(rows), _MOST_ROWS), replace=False)
    x = pool.read(np.sort(some))
    return len(rows), np.array(
      [
        hashed_labels.centroid_error(x, n or len(rows), _CENTROIDS, random)
        for n in positives
      ]
    )

  def chosen(some):
    labels = np.flatnonzero(some & (np.diff(by_label.indptr) > 1))
    return random.permutation(labels)[:_MOST_CENTROIDS]

  frequent = [errors([c], _POSITIVES)[1] for c in chosen(is_frequent)]
  apart = []
  for label in chosen(~is_frequent):
    own, [error] = errors([label], [None])
    shared = np.flatnonzero(buckets == buckets[label])
    joined, [of_bucket] = errors(shared, [None])
    apart.append(error / of_bucket / (joined / own))
  return np.mean(frequent, axis=0) if frequent else None, np.array(apart)


def _values(found) -> dict[str, float]:
  """Returns what is shown of a task; `tasks.papers.fedmlh` has the bounds."""
  from tff_xc.measure import hashed_labels

  sizes = len(found.label_counts), found.num_tables
  rare, counts = ~found.is_frequent, found.label_counts
  of_labels, of_buckets = found.of_labels, found.of_buckets[0]
  mean = lambda values: float(values.mean()) if values.size else 0.0
  share = lambda some: counts[some].sum() / counts.sum()
  fell = lambda finer: (np.diff(finer, axis=0) < -_SAME).any(axis=0).sum()
  error = found.drawn.std() / len(found.drawn) ** 0.5
  least = hashed_labels.least_buckets(*sizes, _FAILURE)
  collisions = hashed_labels.total_collisions(*sizes, found.num_buckets)
  amazon = fedmlh.CONFIGURATIONS[2]
  load = hashed_labels.mean_load(amazon.labels, amazon.tables, amazon.buckets)
  exponent = np.nan
  if found.by_positives is not None:
    logs = np.log(_POSITIVES), np.log(found.by_positives)
    exponent = np.polyfit(*logs, 1)[0]
  return {
    'labels': sizes[0],
    'tables': sizes[1],
    'buckets of a table': found.num_buckets,
    'labels of a bucket, p / B': sizes[0] / found.num_buckets,
    'least buckets that tell all labels apart with probability'
    f' {1 - _FAILURE:g} (Lemma 2)': least,
    'labels that share all buckets with an earlier one': collisions,
    'infrequent labels, of less than 1 % of the training examples': rare.sum(),
    'share of all labels': rare.mean(),
    'share of all positives': share(rare),
    'positives of labels below 0.01 %, share (Fig. 2 b)': share(
      counts < _RARE * found.num_examples
    ),
    'examples of a frequent label on one client, over an even share (Fig. 2 c)': mean(
      _concentration(found)
    ),
    'positive examples of an infrequent label, mean': mean(counts[rare]),
    'of its buckets, mean, an example counts once': mean(
      found.observed[:, rare]
    ),
    'expected, an example counts once': mean(found.once[rare]),
    'expected, an example counts once a label': mean(found.expected[rare]),
    f'mean of {_DRAWS:,} hash functions': mean(found.drawn),
    'bound of Lemma 1': mean(found.least[rare]),
    'standard errors above the bound of Lemma 1': (
      mean(found.drawn) - mean(found.least[rare])
    )
    / (error or 1),
    "exponent of a centroid's error over its positives (Theorem 1)": exponent,
    "error of an infrequent label's centroid over its bucket's, over the inverse ratio"
    ' of their positives (Theorem 1)': found.apart.mean()
    if found.apart.size
    else np.nan,
    f'{amazon.paper}: positives of the bucket of an average label, over its own': load,
    'KL divergence of two clients over labels, mean': mean(of_labels),
    'over the buckets of a table, mean': mean(of_buckets),
    'over twice as many buckets, mean': mean(found.of_buckets[1]),
    'over four times as many buckets, mean': mean(found.of_buckets[2]),
    'over the buckets of all tables together, mean': mean(found.of_tables[-1]),
    'pairs of clients and tables': len(of_labels),
    'pairs whose divergence grew': (of_buckets > of_labels + _SAME).sum(),
    'pairs whose divergence fell with more buckets': fell(found.of_buckets),
    'pairs whose divergence fell with more tables': fell(found.of_tables),
  }


def _frequent_labels(found, most: int) -> np.ndarray:
  """Returns the numbers of the most frequent labels, the most frequent first."""
  return np.argsort(-found.label_counts, kind='stable')[:most]


def _concentration(found) -> np.ndarray:
  """Returns of as many labels as clients, the most frequent, float64 [k] up to K.

  The examples on the client that has most, over those of an even split. Labels without
  examples on clients are left out.
  """
  clients = len(found.client_counts)
  held = found.client_counts[:, _frequent_labels(found, clients)]
  held = held[:, held.any(axis=0)]
  return held.max(axis=0, initial=0) / held.mean(axis=0)


def _plot(found, title: str, path: pathlib.Path) -> None:
  """Draws FedMLH's theory on a data set: the lemma, the theorem, and its figure 2."""
  figure, axes = pictures.panels(4, 2, (11, 8))
  draw = (_positives, _divergences, _frequencies, _clients)
  for ax, draw_panel in zip(axes, draw, strict=True):
    draw_panel(ax, found)
    ax.set_axisbelow(True)
  figure.suptitle(title)
  pictures.save(figure, path)


def _positives(ax, found) -> None:
  order = np.argsort(-found.label_counts, kind='stable')
  rank = np.arange(1, len(order) + 1)
  dots = np.unique(np.geomspace(1, len(order), _MOST_DOTS).astype(int)) - 1
  observed = found.observed.mean(axis=0)[order]
  ax.plot(
    *(rank[dots], observed[dots], '.'),
    color=_OF_BUCKETS,
    markersize=3,
    label='its buckets, mean of the tables',
  )
  ax.plot(
    *(rank, found.expected[order], '--'),
    color=_LEMMA,
    label='its buckets, expected (Lemma 1)',
  )
  alone = np.where(found.label_counts > 0, found.label_counts, np.nan)[order]
  ax.plot(rank, alone, color=_OF_LABELS, label='the label alone')
  ax.set(xscale='log', yscale='log')
  title = 'Positive examples of a label and of its buckets'
  pictures.label(ax, title, 'label, by frequency', 'positive examples')
  ax.legend(frameon=False, fontsize=9)


def _divergences(ax, found) -> None:
  of_labels, of_buckets = found.of_labels, found.of_buckets[0]
  ax.plot(of_labels, of_buckets, '.', color=_OF_BUCKETS, markersize=4)
  most = 1.05 * max(of_labels.max(initial=0), of_buckets.max(initial=0), 1e-3)
  ax.plot([0, most], [0, most], '--', color='0.4')
  ax.annotate(
    'equal', (0.72 * most, 0.72 * most), (-6, 6), textcoords='offset points',
    ha='right', color='0.4',
  )  # fmt: skip
  ax.set(xlim=(0, most), ylim=(0, most))
  title = 'KL divergence of two clients (Theorem 2)'
  y = 'over buckets of a table, nats'
  pictures.label(ax, title, 'over labels, nats', y)


def _frequencies(ax, found) -> None:
  from tff_xc.measure import ranking

  counts = np.sort(found.label_counts)
  share, some = counts / found.num_examples, counts > 0
  for name, each, colour in (
    ('labels', np.ones(len(counts)), _OF_LABELS),
    ('their positives', counts, _OF_BUCKETS),
  ):
    upto = 100 * each.cumsum() / each.sum()
    ax.step(share[some], upto[some], where='post', color=colour, label=name)
  ax.axvline(ranking.FREQUENT, linestyle='--', color='0.4')
  ax.annotate(
    'frequent', (ranking.FREQUENT, 2), (4, 0), textcoords='offset points',
    color='0.4',
  )  # fmt: skip
  ax.set(xscale='log', ylim=(0, 103))
  x, y = "label's share of examples", 'labels or positives up to this share, %'
  pictures.label(ax, 'Frequencies of labels (fig. 2 a, b)', x, y)
  ax.legend(frameon=False, fontsize=9)


def _clients(ax, found) -> None:
  import matplotlib

  clients = len(found.client_counts)
  places, below = np.arange(1, clients + 1), np.zeros(clients)
  some = _frequent_labels(found, _MOST_LABELS)
  colours = matplotlib.colormaps['viridis'](np.linspace(0, 1, len(some)))
  for rank, (label, colour) in enumerate(zip(some, colours, strict=True), 1):
    held = found.client_counts[:, label]
    ax.bar(places, held, bottom=below, color=colour, label=f'{rank}')
    below = below + held
  if clients <= _MOST_TICKS:
    ax.set_xticks(places)
  ax.set(ylim=(0, 1.3 * max(below.max(), 1)))
  title = 'Frequent labels on clients (fig. 2 c)'
  pictures.label(ax, title, 'client', 'examples')
  ax.legend(
    title='labels, by frequency', frameon=False, fontsize=8, title_fontsize=9,
    ncols=_MOST_LABELS // 2, loc='upper center',
  )  # fmt: skip
