"""Measurements that are neither formulas nor scores of runs. Each study is a function.

A study takes the plan (`plan.Planned`), the configuration of a task, the task's loaded data
and model, and a folder for pictures. A study without a task uses only the plan and the folder.
A study returns lines with row, metric and measured value. For lines with the metric
`lines.VALUE`, `tasks.papers` has the expected values.
"""

import dataclasses
import itertools
import pathlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import scipy.sparse

from datasets import examples as examples_lib
from datasets.splits import rules
from launch import runs as runs_lib, trained
from launch.reproduction import lines as lines_lib, plan
from tasks import experiment, registry as tasks
from tasks.papers import data, fedmlh, fedvc
from tff_xc import errors
from tff_xc.algorithms import fedss as fedss_lib
from tff_xc.data import hashing, pool as pool_lib
from tff_xc.measure import hashed_labels, ranking, skew
from tff_xc.report import curves, methods, pictures, run_files, split_pictures
from tff_xc.round import cohort, process

Line = lines_lib.Line


def measure(planned: plan.Planned, folder: pathlib.Path) -> list[Line]:
  """Measures a study on each of its tasks whose data exist."""
  study, lines = STUDIES[planned.found.measure], []
  if not planned.configs:
    return study(planned, {}, None, folder)
  there = plan.with_data(planned.configs)
  for config in planned.configs:
    task = config['task']
    if there[task]:
      loaded = tasks.get(task).load(config['data_dir'], config['options'])
      made = study(planned, config, loaded, folder)
    else:
      note = 'its files are missing'
      made = [Line(row='all values', metric=lines_lib.VALUE, note=note)]
    lines += [dataclasses.replace(line, task=task) for line in made]
  return lines


def _line(row: str, metric: str, value: float, std: float | None = None, **more) -> Line:
  number = lines_lib.Number(float(value), std)
  return Line(row=row, metric=metric, measured=number, **more)


def _values(values: Mapping[str, float]) -> list[Line]:
  """Returns a line for each named value that has published or expected bounds."""
  return [_line(name, lines_lib.VALUE, value) for name, value in values.items()]


def class_counts(planned, config, loaded, folder: pathlib.Path) -> list[Line]:
  """Counts the classes of each client by alpha, and measures the skew (EMD) of the clients.

  This is fig. 10 of FedVC. A split of CIFAR needs only the labels. Each class has 5,000 examples
  in CIFAR-10 and 500 in CIFAR-100, so the study needs no files.
  """
  grid, values, panels = [], [], {}
  for name, by_alpha in fedvc.EMD.items():
    classes = int(name.removeprefix('CIFAR-'))
    labels = np.repeat(np.arange(classes), 50_000 // classes)
    for alpha, derived in by_alpha.items():
      counts = []
      for seed in range(5):
        dealt = rules.deal(
          'dirichlet',
          examples_lib.of_labels(labels),
          seed,
          concentration=alpha,
          clients=100,
          examples_per_client=500,
        ).train
        of_examples = dealt.owners(), labels[dealt.numbers]
        counts.append(skew.class_counts(*of_examples, (100, classes)))
      emd = [skew.emd(each) for each in counts]
      row, mean, std = fedvc.at(name, alpha), np.mean(emd), np.std(emd, ddof=1)
      held = np.mean([c.getnnz(axis=1).mean() for c in counts])
      grid += [
        _line(row, 'EMD, derived', derived),
        _line(row, 'EMD', mean, std, seeds=5),
        _line(row, 'classes of a client', held),
        _line(row, 'examples of a client', counts[0].sum(axis=1).min()),
      ]
      values.append(_line(f'EMD at {row}', lines_lib.VALUE, mean, std, seeds=5))
      panels[f'{name}, alpha = {alpha:g}\nEMD {emd[0]:.2f}'] = counts[0]
  split_pictures.plot_panels(panels, folder / 'result.png')
  return grid + values


def confusion(planned, config, loaded, folder: pathlib.Path) -> list[Line]:
  """Draws confusion matrices of one client with FedSS and NegOnly (FedSS, fig. 7)."""
  client, shares, lines = None, [], []
  for [run] in planned.runs:
    if not runs_lib.is_finished(run):
      raise errors.InputError(f'{run.folder} has not finished; run it first')
    # The flags give these names. The run directory may be untrusted.
    encoder = run_files.flat(run.config).get('encoder')
    named = {'encoder': encoder} if encoder else {}
    named |= {n: v for n, v in planned.request.given.items() if n == 'data_dir'}
    found = trained.restore(run.folder, named)
    client = client or trained.choose_client(found.dataset.train, None)
    _, predictions, labels = found.predictions(client)
    class_ids = np.unique(labels)
    matrix = ranking.confusion(predictions, labels, class_ids)
    shares.append(100 * (matrix.trace() / matrix.sum()))
    algorithm = run.config['algorithm']
    title = f'{methods.title(algorithm)}, {run.point}: client {client}'
    curves.plot_confusion(matrix, class_ids, folder / f'{algorithm}.png', title)
    row, predicted = f'{run.point}, client {client}', matrix[:, :-1].sum(axis=0)
    lines += [
      _line(row, 'on the diagonal %', shares[-1]),
      _line(row, 'classes predicted', np.count_nonzero(predicted)),
      _line(row, 'of those held', len(class_ids)),
    ]
  [difference] = planned.found.expected
  return lines + _values({difference: shares[0] - shares[1]})


def data_statistics(planned, config, loaded, folder: pathlib.Path) -> list[Line]:
  """Measures statistics of the clients, classes and labels of a data set."""
  dataset, task = loaded[0], config['task']
  train, counts = dataset.train, _held(dataset)
  name, scale = planned.found.name, planned.request.scale
  [printed] = [x.numbers for x in data.sets(name, scale) if x.task == task]
  lines = []
  for statistic, value in statistics(dataset, counts).items():
    number = printed.get(statistic, data.Statistic(None, 0, 0, ''))
    more = {'published': number.printed, 'note': number.origin}
    lines.append(_line(statistic, lines_lib.VALUE, value, **more))
  picture, path = data.STATISTICS[name][1], folder / f'{task}.png'
  sizes = train.partition.sizes
  if picture == 'sizes':
    split_pictures.plot_sizes({task: sizes}, path)
  elif picture:
    split_pictures.plot_clients(sizes, counts.getnnz(axis=1), path)
  if picture == 'labels':
    of_train, of_test = np.asarray(counts.sum(axis=0)).ravel(), None
    if dataset.test is not None:
      of_test = np.bincount(dataset.test.labels, minlength=dataset.num_classes)
    split_pictures.plot_labels(of_train, of_test, folder / f'{task}_classes.png')
  return lines


def statistics(dataset, counts) -> dict[str, float]:
  """Returns the statistics that apply to a data set, by name.

  `counts`, sparse int [clients, classes], has the numbers of labels of the clients' examples.
  """
  train, test, of_labels = dataset.train, dataset.test, dataset.propensity
  sizes = train.partition.sizes
  sizes, held = sizes[sizes > 0], counts.getnnz(axis=1)[sizes > 0]
  examples = of_labels.num_examples if of_labels else int(sizes.sum())
  found = {
    data.CLIENTS: len(sizes),
    data.CLASSES: dataset.num_classes,
    data.EXAMPLES: examples,
    data.MEAN: sizes.mean(),
    data.STD: sizes.std(),
    data.HELD: held.mean(),
    data.MOST_HELD: held.max(),
  }
  if test is not None:
    found |= {data.TEST: len(test), data.ALL: examples + len(test)}
  if train.pool.spec is pool_lib.SPARSE:
    found[data.FEATURES] = train.pool.read(sizes[:0]).shape[1]
  if of_labels:
    labels = of_labels.label_counts.sum()
    found[data.LABELS] = labels / examples
    found[data.POSITIVES] = labels / dataset.num_classes
  if not scipy.sparse.issparse(train.pool.labels):
    found[data.EMD] = skew.emd(counts)
  if test is not None and not scipy.sparse.issparse(test.labels):
    found[data.TEN_TESTS] = (np.bincount(test.labels) == 10).sum()
  return found


def gradient_noise(planned: plan.Planned, config, loaded, folder: pathlib.Path) -> list[Line]:
  """Measures by how much FedSS's delta differs from FullSoftmax's delta, by m (FedSS, fig. 9).

  The K clients of a round have the same batch, but sample different negatives. Each client
  trains one local epoch from the initial weights. In the first round, the momentum of the server
  is the mean delta, so the weights after the round differ by the difference of the deltas.
  """
  experiment.install_runtime(config)
  found = noises(*loaded, config)
  *sampled, everything = found
  points = [(m, found[m]) for m in sampled]
  labels = 'm, sampled negatives', 'mean absolute difference of the deltas'
  figure = curves.lines_figure({'all weights': points}, '', *labels)
  pictures.save(figure, folder / 'result.png')
  lines = []
  for m, noise in found.items():
    row = 'm = n - |P|' if m == everything else f'm = {m:,}'
    lines.append(_line(row, 'all weights', noise))
  falls, is_exponential, of_everything = planned.found.expected
  noise, logarithm = [*found.values()], np.log([y for _, y in points])
  values = {
    falls: max(b / a for a, b in itertools.pairwise(noise)),
    is_exponential: np.corrcoef(sampled, logarithm)[0, 1] ** 2,
    of_everything: noise[-1],
  }
  return lines + _values(values)


_BATCH, _BATCHES = 32, 4
_FEWEST, _MOST = 5, 80  # The smallest and the largest number of negatives in Tables 1 and 2.


def noises(dataset, model, config: Mapping[str, Any]) -> dict[int, float]:
  """Returns the mean absolute difference of weights between FedSS and FullSoftmax, by m."""
  train, n = dataset.train, dataset.num_classes
  large = [k for k, size in enumerate(train.partition.sizes) if size >= _BATCH]
  batches = [train.partition.of_client(k)[:_BATCH] for k in large[:_BATCHES]]
  own = max((len(np.unique(train.pool.labels[batch])) for batch in batches), default=n)
  if n - own <= _MOST:
    raise errors.InputError(
      f'the noise is measured with batches of {_BATCH} examples of a client, and needs more than'
      f' {_MOST} classes that a batch does not have; give more classes (--num_classes)'
    )
  values = {**config['hyperparameters'], 'batch_size': _BATCH}
  clients, full = values['clients_per_round'], fedss_lib.FullSoftmax
  taken = {name: value for name, value in values.items() if name in full.names}
  training = full(**taken).local_training()

  def weights_after(made) -> list[np.ndarray]:
    """Returns all weights after a first round on each batch."""
    built, found = process.build_process(made, config['seed']), []
    for place, batch in enumerate(batches):
      value = cohort.client_value(train, batch, 0)
      # Each client of each batch has its own id, and therefore its own negatives.
      ids = range(place * clients, (place + 1) * clients)
      examples = [value._replace(client_id=np.int64(each)) for each in ids]
      # Each round gets a new state, because it may update the state in place.
      state = built.next(built.initialize(), examples).state
      weights = built.get_model_weights(state)
      parts = [*weights.encoder.values(), *weights.tables.values()]
      found.append(np.concatenate([np.float64(w).ravel() for w in parts]))
    return found

  exact = weights_after(full.made(model=model, local_training=training))
  doubled = (_FEWEST * 2**power for power in range(n.bit_length()))
  grid, found = [m for m in doubled if m < n - own], {}
  # With m = n - 1, clients sample all n - |P| classes that are not their own.
  for m in (*grid, n - 1):
    sampled = fedss_lib.FedSS.made(
      model=model, max_positives=own, negatives=m, local_training=training
    )
    pairs = zip(weights_after(sampled), exact, strict=True)
    found[m] = float(np.mean([np.abs(a - b).mean() for a, b in pairs]))
  return found


def fedaws_theory(planned: plan.Planned, config, loaded, folder: pathlib.Path) -> list[Line]:
  """Compares FedAwS's objective with the contrastive loss of eq. (11) and (12).

  With unit rows w_c, an embedding g of class y, s_c = g . w_c and a margin nu:

    l_ccl = (1 - s_y)^2 + sum_{c != y} max(0, nu - 1 + s_c)^2          eq. (11), (12)
    l_sp  = (1 - s_y)^2 + sum_{c != y} max(0, nu - 1 + w_y . w_c)^2

  FedAwS minimizes the mean of l_sp if each client has one class, all clients have equally many
  examples, and the server's eq. (7) uses the cosine distance. The following statements come from
  public summaries of the paper. We did not compare them with the paper itself:

    Lemma 1   l_ccl >= 2 (nu - 1) if another class has a higher cosine, 1 < nu < 2
    eq. (17)  |l_sp - l_ccl| <= (1 + 2 nu) sum_{c != y} |w_c . (w_y - g)|

  Both statements can be proved with better constants, nu^2 / 2 and 2 nu. The study draws random
  examples. The rows are either far apart, or close together as after a collapse. The embeddings
  are at various distances from the row of their class.
  """
  found, examples = [], 0
  draws = itertools.product((2, 10, 100, 1000), (0.0, 2.0), (1.1, 1.5, 1.9))
  for classes, shared, margin in draws:
    before = 0.0
    for noise in (0.1, 0.3, 1.0, 3.0, 10.0):
      drawn = contrastive(classes, shared, margin, noise)
      apart = np.abs(drawn['l_sp'] - drawn['l_ccl'])
      share = (apart / drawn['mismatch']).max()
      least = drawn['l_ccl'][drawn['is wrong']].min(initial=np.inf)
      examples += len(apart)
      found.append(
        [
          drawn['is wrong'].sum(),
          least / (2 * (margin - 1)),
          least / (margin**2 / 2),
          share / (1 + 2 * margin),
          share / (2 * margin),
          abs(drawn['objective'] / drawn['l_sp'].mean() - 1),
          before / apart.mean(),
        ]
      )
      before = apart.mean()
  wrong, lemma, ours, *most = np.transpose(found)
  shown = [wrong.sum(), lemma.min(), ours.min(), *np.max(most, axis=1)]
  names = [*planned.found.expected]
  return _values({'examples': examples, **dict(zip(names, shown, strict=True))})


def contrastive(classes: int, shared: float, margin: float, noise: float) -> dict[str, Any]:
  """Draws unit rows and embeddings, and returns their `losses`.

  Before normalization, all rows share a component of length `shared`. An embedding is the row of
  its class plus noise of about the length `noise`.
  """
  random, dim = np.random.default_rng(classes), 64
  rows = random.normal(size=(classes, dim)) / dim**0.5 + shared * np.eye(dim)[0]
  rows /= np.linalg.norm(rows, axis=1, keepdims=True)
  y = np.repeat(np.arange(classes), max(2000 // classes, 1))
  away = random.normal(size=(len(y), dim)) / dim**0.5
  embeddings = rows[y] + noise * away
  embeddings /= np.linalg.norm(embeddings, axis=1, keepdims=True)
  return losses(rows, embeddings, y, margin)


def losses(
  rows: np.ndarray, embeddings: np.ndarray, y: np.ndarray, margin: float
) -> dict[str, Any]:
  """Returns the losses of unit embeddings [N, d] with labels y [N] and unit rows [C, d].

  'objective' is FedAwS's objective: the mean over examples of (1 - s_y)^2, which the clients
  minimize, plus reg(W) / C, with reg of eq. (7). All other values have the shape [N].
  `fedaws_theory` defines l_ccl and l_sp. 'is wrong' is true if another class has a cosine of at
  least s_y, and 'mismatch' is the sum in eq. (17).
  """
  cosines, of_rows = embeddings @ rows.T, rows @ rows.T
  own = cosines[np.arange(len(y)), y]
  others = np.arange(len(rows)) != y[:, None]
  pull = (1 - own) ** 2
  push = np.maximum(0, margin - 1 + cosines) ** 2 * others
  spread = np.maximum(0, margin - 1 + of_rows[y]) ** 2 * others
  apart = np.maximum(0, margin - 1 + of_rows[~np.eye(len(rows), dtype=bool)])
  return {
    'is wrong': (others & (cosines >= own[:, None])).any(axis=1),
    'l_ccl': pull + push.sum(axis=1),
    'l_sp': pull + spread.sum(axis=1),
    'mismatch': (np.abs(of_rows[y] - cosines) * others).sum(axis=1),
    'objective': pull.mean() + (apart**2).sum() / len(rows),
  }


def fedmlh_theory(planned, config, loaded, folder: pathlib.Path) -> list[Line]:
  """Measures what FedMLH's lemmas, theorems and figure 2 state, on the labels of a task."""
  values, dataset = config['hyperparameters'], loaded[0]
  draw_labels(dataset, folder / f'{config["task"]}.png')
  return _values(hashed(dataset, values['hash_tables'], values['hash_buckets']))


def hashed(dataset, tables: int, buckets: int) -> dict[str, float]:
  """Returns the values that the lemmas and theorems predict, and the measured values, by name.

  Needs memory for K n numbers, with K clients and n labels.
  """
  y, known, n = dataset.train.pool.labels, dataset.propensity, dataset.num_classes
  counts, rare = known.label_counts, ~ranking.frequent(known)
  held = _held(dataset).toarray()
  # The function computes the divergences of all pairs of clients over three groupings of the
  # labels: single labels; the buckets of one table, and of finer tables that split these buckets;
  # the joint buckets of the first tables.
  others = ~np.eye(len(held), dtype=bool)

  def divergences(counts):
    return hashed_labels.divergences(counts)[others]

  observed, of_buckets, of_tables = [], [], []
  for seed in range(tables):
    own = hashing.buckets(np.arange(n), seed, buckets)
    observed.append(hashed_labels.bucket_examples(y, seed, buckets)[own][rare])
    finer = [hashed_labels.bucket_counts(held, seed, k * buckets) for k in (1, 2, 4)]
    of_buckets.append([divergences(each) for each in finer])
    joint = hashed_labels.joint_buckets(n, seed + 1, buckets)
    groups = hashed_labels.group_counts(held, joint, joint.max() + 1)
    of_tables.append(divergences(groups))
  of_labels, of_buckets = (np.tile(divergences(held), tables), np.concatenate(of_buckets, 1))
  drawn, same = np.zeros(1), 1e-9  # Divergences within 1e-9 nats count as equal.
  if rare.any():
    drawn = hashed_labels.drawn_positives(counts, rare, buckets, 1000)
  least = hashed_labels.least_positives(counts, buckets)[rare]
  expected = hashed_labels.expected_positives(counts, buckets)[rare]
  once = hashed_labels.expected_examples(y, buckets)[rare]
  error = drawn.std() / len(drawn) ** 0.5
  exponent, ratio = _centroids(dataset.train.pool, ~rare, buckets)
  amazon = fedmlh.CONFIGURATIONS[2]
  load = hashed_labels.mean_load(amazon.labels, amazon.tables, amazon.buckets)
  few = counts < 1e-4 * known.num_examples
  return {
    'labels': n,
    'tables': tables,
    'buckets of a table': buckets,
    'labels of a bucket, p / B': n / buckets,
    'least buckets that tell all labels apart with probability 0.95 (Lemma 2)': (
      hashed_labels.least_buckets(n, tables, 0.05)
    ),
    'labels that share all buckets with an earlier one': (
      hashed_labels.total_collisions(n, tables, buckets)
    ),
    'infrequent labels, of less than 1 % of the training examples': rare.sum(),
    'share of all labels': rare.mean(),
    'share of all positives': counts[rare].sum() / counts.sum(),
    'positives of labels below 0.01 %, share (Fig. 2 b)': counts[few].sum() / counts.sum(),
    'examples of a frequent label on one client, over an even share (Fig. 2 c)': (
      concentration(held, counts)
    ),
    'positive examples of an infrequent label, mean': _mean(counts[rare]),
    'of its buckets, mean, an example counts once': _mean(observed),
    'expected, an example counts once': _mean(once),
    'expected, an example counts once a label': _mean(expected),
    'mean of 1,000 hash functions': _mean(drawn),
    'bound of Lemma 1': _mean(least),
    'standard errors above the bound of Lemma 1': ((_mean(drawn) - _mean(least)) / (error or 1)),
    "exponent of a centroid's error over its positives (Theorem 1)": exponent,
    "error of an infrequent label's centroid over its bucket's, over the inverse ratio"
    ' of their positives (Theorem 1)': ratio,
    f'{amazon.paper}: positives of the bucket of an average label, over its own': load,
    'KL divergence of two clients over labels, mean': _mean(of_labels),
    'over the buckets of a table, mean': _mean(of_buckets[0]),
    'over twice as many buckets, mean': _mean(of_buckets[1]),
    'over four times as many buckets, mean': _mean(of_buckets[2]),
    'over the buckets of all tables together, mean': _mean(of_tables[-1]),
    'pairs of clients and tables': len(of_labels),
    'pairs whose divergence grew': (of_buckets[0] > of_labels + same).sum(),
    'pairs whose divergence fell with more buckets': (
      (np.diff(of_buckets, axis=0) < -same).any(axis=0).sum()
    ),
    'pairs whose divergence fell with more tables': (
      (np.diff(of_tables, axis=0) < -same).any(axis=0).sum()
    ),
  }


def _mean(values) -> float:
  """Returns the mean of numbers; 0 if there are none."""
  return float(np.mean(values)) if np.size(values) else 0.0


def _held(dataset) -> scipy.sparse.csr_matrix:
  """Returns int [K, n], the number of examples of each class or label on each client."""
  shape = len(dataset.train.partition), dataset.num_classes
  return skew.class_counts(*dataset.train.owned_labels(), shape)


def concentration(held, counts) -> float:
  """Returns how strongly the most frequent labels are concentrated on single clients.

  The function uses the K most frequent labels, where K is the number of clients. For each label, it
  divides the largest number of examples on a client by the mean over clients. The result is the
  mean of these ratios. `held` is int [K, n], and `counts` has the number of examples of each label.
  """
  most = held[:, np.argsort(-counts, kind='stable')[: len(held)]]
  most = most[:, most.any(axis=0)]
  return _mean(most.max(axis=0, initial=0) / most.mean(axis=0))


def _centroids(pool, is_frequent, num_buckets: int) -> tuple[float, float]:
  """Returns the two values of Theorem 1; nan if there are no suitable labels.

  The first value is the exponent of a centroid's error as a function of its number of positives.
  For the second value, the error of an infrequent label is divided by the error of its bucket,
  and then by the inverse ratio of their positives.
  """
  random, by_label = np.random.default_rng(0), pool.labels.tocsc()
  buckets = hashing.buckets(np.arange(len(is_frequent)), 0, num_buckets)
  positives = 2, 4, 8, 16, 32, 64

  def errors_of(labels, numbers: Iterable[int | None]):
    """Returns the number of examples with any of the labels, and the errors of their centroid.

    `numbers` has the sample sizes of the errors. None stands for the number of these examples.
    """
    rows = np.unique(by_label[:, labels].indices)
    x = pool.read(np.sort(random.choice(rows, min(len(rows), 5000), replace=False)))
    sizes = [number or len(rows) for number in numbers]
    return len(rows), [hashed_labels.centroid_error(x, size, 200, random) for size in sizes]

  def chosen(some):
    labels = np.flatnonzero(some & (np.diff(by_label.indptr) > 1))
    return random.permutation(labels)[:20]

  frequent = [errors_of([label], positives)[1] for label in chosen(is_frequent)]
  exponent, ratios = np.nan, []
  if frequent:
    mean = np.mean(frequent, axis=0)
    exponent = np.polyfit(np.log(positives), np.log(mean), 1)[0]
  for label in chosen(~is_frequent):
    own, [error] = errors_of([label], [None])
    joined, [of_bucket] = errors_of(np.flatnonzero(buckets == buckets[label]), [None])
    ratios.append(error / of_bucket / (joined / own))
  return exponent, np.mean(ratios) if ratios else np.nan


def draw_labels(dataset, path: pathlib.Path) -> None:
  """Draws FedMLH's figure 2: label frequencies, and the clients that have frequent labels."""
  figure, [of_labels, of_clients] = pictures.panels(2, 2, (11, 4))
  known, held = dataset.propensity, _held(dataset).toarray()
  counts = np.sort(known.label_counts)
  for name, weights in (('labels', np.ones(len(counts))), ('their positives', counts)):
    upto = 100 * weights.cumsum() / weights.sum()
    of_labels.step(counts / known.num_examples, upto, where='post', label=name)
  of_labels.set_xscale('log')
  x, y = "label's share of examples", 'labels or positives up to this share, %'
  pictures.label(of_labels, 'Frequencies of labels (fig. 2 a, b)', x, y)
  places, below = np.arange(1, len(held) + 1), np.zeros(len(held))
  for label in np.argsort(-known.label_counts, kind='stable')[:10]:
    of_clients.bar(places, held[:, label], bottom=below)
    below = below + held[:, label]
  title = 'Ten most frequent labels on clients (fig. 2 c)'
  pictures.label(of_clients, title, 'client', 'examples')
  of_labels.legend(frameon=False)
  pictures.save(figure, path)


STUDIES: Mapping[str, Callable[..., list[Line]]] = {
  study.__name__: study
  for study in (
    class_counts,
    confusion,
    data_statistics,
    fedaws_theory,
    fedmlh_theory,
    gradient_noise,
  )
}
