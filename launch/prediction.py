"""Predicts with a trained model, and finds nearest neighbors. Imports TensorFlow."""

import contextlib
import csv
import itertools
import os
import pathlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
import tensorflow as tf
import tqdm

from datasets import raw_examples
from launch import export as exporting, trained
from tff_xc import errors, files, predictor as predictor_lib, wording
from tff_xc.data import description as description_lib
from tff_xc.measure import catalog, neighbors as neighbors_lib, ranking
from tff_xc.report import run_files

# The largest number of scores in memory at once, and the largest number of examples in a block.
_SCORES, _BLOCK = 2**24, 256
# The number of queries on which an approximate index is compared with exact search.
_CHECKED = 1000
# The largest number of rows, and of columns, in a picture of neighbors.
_ROWS, _COLUMNS = 8, 10


class Model(NamedTuple):
  """A trained model from a run or from an exported file."""

  description: description_lib.Description
  class_names: list[str] | None  # None: class numbers serve as names.
  top: int  # The largest number of classes that the model returns.
  # Raw examples -> classes int32 [B, k], scores float32 [B, k], embedding float32
  # [B, ...]. The arguments are those of `predictor.Predictor`.
  predict: Callable[..., Mapping[str, np.ndarray]]


def run(
  inputs: Sequence[str],
  *,
  run_dir: str | None = None,
  model: str | None = None,
  round_wanted: str = trained.CHOSEN,
  top: int = 5,
  output: str | None = None,
  label_column: str = '',
  neighbors: int = 0,
  gallery: str | None = None,
  index: str = neighbors_lib.EXACT,
  picture: str | None = None,
  corrupt: str = '',
  named: Mapping[str, str] | None = None,
) -> dict[str, float]:
  """Predicts classes, and prints or writes them; returns the scores of the predictions.

  The arguments are the flags of `launch.predict`.
  """
  for path in filter(None, (output, picture)):
    _check_written(path, [*inputs, *filter(None, [gallery])])
  neighbors_lib.check(index)
  # All metrics need this number of ranks.
  most = max(top, *catalog.AT)

  def read(paths, of):
    return raw_examples.read(
      paths,
      of.description,
      label_column,
      max(1, min(_BLOCK, _SCORES // of.description.num_classes)),
      corrupt,
      of.class_names,
    )

  if model:
    found = of_file(model)
    if found.top < min(top, found.description.num_classes):
      raise errors.InputError(
        f'--top={top}: {model} returns only {wording.count(found.top, "class")}; ask for'
        f' fewer, or export it with --top={top}'
      )
    queries = read(inputs, found)
  else:
    run_of = trained.load(run_dir, round_wanted, named)
    if not neighbors:
      trained.check_rows(
        run_of.config,
        'give a model that launch.export --calibrate wrote as --model, or --neighbors,'
        ' which need no class rows',
      )
    queries = read(inputs, run_of)
    found = _of_trained(run_of, most + queries.most_seen)
  top = min(top, found.top)
  nearest = None
  if neighbors:
    nearest = _Neighbors(found, read([gallery], found), neighbors, index)
    if picture and queries.image is None:
      raise errors.InputError(f'--picture={picture}: only images can be drawn; leave it out')
  heading = ['input']
  for place in range(1, top + 1):
    heading += [f'class_{place}', f'score_{place}']
  for place in range(1, neighbors + 1):
    heading += [f'neighbor_{place}', f'distance_{place}']

  def name_of(c):
    return found.class_names[c] if found.class_names else str(c)

  is_shown = output is None and sys.stdout.isatty()
  damaged, answers, short = [], [], 0
  with (
    _writer(output, heading) as write,
    tqdm.tqdm(total=queries.count, unit=queries.noun, disable=True if is_shown else None) as bar,
  ):
    for block in queries.blocks:
      rows = [[name] for name in block.names]
      if rows:
        results = found.predict(*block.raw)
        classes = results[predictor_lib.CLASSES]
        values = results[predictor_lib.SCORES]
        if block.seen is not None:
          classes, values = ranking.without(classes, block.seen, most, values)
          short += int((classes[:, :top] < 0).any(axis=1).sum())
        answers.append((classes, block.labels))
        for row, best, of in zip(rows, classes[:, :top], values, strict=True):
          for c, value in zip(best, of, strict=False):
            row += [name_of(c), f'{value:.6g}'] if c >= 0 else ['', '']
        if nearest:
          nearest.add(rows, block, results[predictor_lib.EMBEDDING])
      for place, name, _ in block.damaged:
        rows.insert(place, [name])
      for row in rows:
        write(row)
      damaged += block.damaged
      bar.update(len(rows))
  _tell_damaged(damaged, queries)
  if short:
    known = found.description.num_classes
    why = f'the model knows only {known:,} items, and the users already have the others'
    if found.top < known and model:
      why = f'the model returns only {found.top} items; export it with a larger --top'
    print(
      f'warning: {wording.count(short, queries.noun)} with fewer than {top} new items: {why}',
      file=sys.stderr,
    )
  count = sum(len(best) for best, _ in answers)
  labelled = [(best, of) for best, of in answers if scipy.sparse.issparse(of) or any(of or ())]
  measured, known = _scores(found, labelled)
  if nearest:
    measured |= nearest.scores()
    if picture:
      nearest.draw(queries.image, picture)
      print(f'picture: {picture}')
  if output:
    print(f'{wording.count(count, queries.noun)}: {output}')
  if labelled and known < count:
    print(f'{known:,} of {count:,} have labels of the model')
  for name, value in measured.items():
    print(f'{name:19s} {value:.4f}')
  return measured


def _tell_damaged(damaged: Sequence[tuple[int, str, str]], inputs) -> None:
  """Prints the number of images that are left out."""
  if damaged:
    _, name, why = damaged[0]
    print(
      f'warning: {len(damaged):,} of {wording.count(inputs.count, inputs.noun)} left'
      f' out, first {wording.shown(name)}: {wording.shown(why)} (--corrupt=fail makes this an'
      ' error)',
      file=sys.stderr,
    )


def _check_written(path: str, inputs: Sequence[str]) -> None:
  """Refuses a file that cannot be written, or that is one of the inputs."""
  if not pathlib.Path(path).absolute().parent.is_dir():
    raise errors.InputError(f'{path}: there is no such folder; make it first')
  for source in inputs:
    both = os.path.exists(path) and os.path.exists(source)
    if both and os.path.samefile(path, source):
      raise errors.InputError(f'{path} is read as an input, too; name another file')


@contextlib.contextmanager
def _writer(output: str | None, heading: list[str]) -> Iterator[Callable]:
  """Yields a function that writes a row to a CSV, or prints it."""
  if output is None:
    # A line has the classes, and after a semicolon the neighbors, if there are any.
    classes = sum(name.startswith('class_') for name in heading)

    def show(row):
      cells = list(zip(row[1::2], row[2::2], strict=True))
      best, nearest = (
        # A name is empty if the user already has all other items.
        ', '.join(f'{wording.shown(name)} {value}' for name, value in part if name)
        for part in (cells[:classes], cells[classes:])
      )
      nothing = 'no new item' if cells else 'left out'
      told = (best or nothing) + (f'; nearest: {nearest}' if nearest else '')
      print(f'{wording.shown(row[0])}:', told)

    yield show
    return
  try:
    with files.csv_rows(output) as file:
      writer = csv.writer(file)
      writer.writerow(heading)
      width = len(heading)
      yield lambda row: writer.writerow(row + [''] * (width - len(row)))
  except OSError as e:
    written = pathlib.Path(output)
    name = pathlib.Path(e.filename or output).name
    if name != written.name and not name.startswith(f'.{written.stem}.'):
      raise
    raise errors.InputError(
      f'--output={output} cannot be written ({e.strerror or e}); mend that, or name another'
    ) from e


# -- models --


def _of_trained(found: trained.Trained, top: int) -> Model:
  """Returns the model of a run, which returns at most `top` classes."""
  predictor = predictor_lib.Predictor(found.model, found.weights, found.description, top)

  def predict(*raw):
    return {name: t.numpy() for name, t in predictor.predict(*raw).items()}

  top = min(top, found.model.num_classes)
  names = found.class_names or _symbols(found.description)
  return Model(found.description, names, top, predict)


def _symbols(description: description_lib.Description) -> list[str] | None:
  """Returns the characters that a model of text predicts; None for other models."""
  if description.kind == description_lib.CHARACTERS:
    symbols = [*description.preprocessing['alphabet']]
    return symbols if len(symbols) == description.num_classes else None
  return None


def of_file(folder: str) -> Model:
  """Loads an export of launch.export; raises InputError if it is missing or damaged."""
  path = pathlib.Path(folder)
  if not (path / exporting.CARD).is_file():
    raise errors.InputError(
      f'--model={path} has no {exporting.CARD}; give a folder that launch.export wrote'
    )
  try:
    card = files.read_json(path / exporting.CARD)
    description = description_lib.from_json(card['description'])
    form, top = card['format'], int(card['top'])
    if not 0 < top <= description.num_classes:
      raise ValueError(f'top is {top}')
    # The order of keys in JSON has no meaning. An export of weights alone has no inputs.
    arguments = description_lib.ARGUMENTS[description.kind] if form in LOADERS else ()
    types = {name: np.dtype(card['inputs'][name]['dtype']) for name in arguments}
    names = _symbols(description)
    if card['named_classes']:
      names = run_files.class_names(path / run_files.CLASSES, description.num_classes)
  except (OSError, ValueError, KeyError, TypeError, AttributeError) as e:
    raise errors.InputError(
      f'{path / exporting.CARD} is damaged ({wording.shown(e)}); export it again'
    ) from e
  if form not in LOADERS:
    raise errors.InputError(
      f'--model={path} has the format {wording.shown(form)}, which has only weights;'
      f' export it as {", ".join(LOADERS)}, or give --run_dir'
    )
  try:
    with files.plain(path) as plain:
      call = LOADERS[form](plain)
  except errors.InputError:
    raise
  except Exception as e:  # Each library has its own exceptions.
    lines = str(e).strip().splitlines() or [type(e).__name__]
    raise errors.InputError(
      f'--model={path} cannot be loaded ({wording.shown(lines[0])[:200]}); export it again'
    ) from e

  def predict(*raw):
    arguments = {
      name: np.asarray(x).astype(kind, copy=False)
      for (name, kind), x in zip(types.items(), raw, strict=True)
    }
    return {name: np.asarray(x) for name, x in call(arguments).items()}

  return Model(description, names, top, predict)


def _saved_model(path: pathlib.Path) -> Callable:
  loaded = tf.saved_model.load(str(path))
  call = loaded.signatures['serving_default']
  # `loaded` must stay alive, because it owns the signature's variables.
  return lambda arguments, kept=loaded: call(**{n: tf.constant(x) for n, x in arguments.items()})


def _tflite(path: pathlib.Path) -> Callable:
  interpreter = predictor_lib.lite.Interpreter(str(path / exporting.FILES['tflite']))
  runner = interpreter.get_signature_runner()
  return lambda arguments, kept=interpreter: runner(**arguments)


def _onnx(path: pathlib.Path) -> Callable:
  try:
    import onnxruntime
  except ModuleNotFoundError as e:
    raise errors.InputError(
      'models in onnx format need onnxruntime: run `pip install onnxruntime`'
    ) from e
  session = onnxruntime.InferenceSession(str(path / exporting.FILES['onnx']))
  names = [output.name for output in session.get_outputs()]
  return lambda arguments: dict(zip(names, session.run(None, arguments), strict=True))


# Loaders by format. A loader takes a folder and returns a function from raw examples (arrays by
# name) to outputs.
LOADERS = {'saved_model': _saved_model, 'tflite': _tflite, 'onnx': _onnx}


# -- scores --


def _scores(model: Model, blocks: Sequence[tuple[np.ndarray, Any]]) -> tuple[dict[str, float], int]:
  """Returns mean scores, and the number of inputs whose label the model knows.

  The scores are means over these inputs: top1 and top5, or for label sets p@k, hit@k, recall@k
  and ndcg@k. `blocks` has predictions int [B, k], best first, and labels as in `raw_examples`.
  """
  if not blocks:
    return {}, 0
  classes = np.concatenate([found for found, _ in blocks])
  is_sets = scipy.sparse.issparse(blocks[0][1])
  if is_sets:
    labels = scipy.sparse.vstack([of for _, of in blocks], 'csr')
    has = np.diff(labels.indptr) > 0
  else:
    names = model.class_names or map(str, range(model.description.num_classes))
    numbers = {name: number for number, name in enumerate(names)}
    options = itertools.chain.from_iterable(of for _, of in blocks)
    labels = np.array([next((numbers[o] for o in each if o in numbers), -1) for each in options])
    has = labels >= 0
  classes, labels, count = classes[has], labels[has], int(has.sum())
  ks = [k for k in catalog.AT if k <= classes.shape[1]]
  if not count or not ks:
    return {}, count
  if is_sets:
    found = ranking.label_set_scores(classes, labels, ks=ks)
    kept = ('p@', 'hit@', 'recall@', 'ndcg@')
    return {name: value for name, value in found.items() if name.startswith(kept)}, count
  return {f'top{k}': ranking.top_accuracy(classes, labels, k) for k in ks if k != 3}, count


# -- neighbours --


class _Neighbors:
  """Finds the nearest inputs of a gallery."""

  def __init__(self, model: Model, gallery, k: int, kind: str):
    self._names, self._keys, labels, points, damaged = [], [], [], [], []
    with tqdm.tqdm(total=gallery.count, unit=gallery.noun, desc='gallery', disable=None) as bar:
      for block in gallery.blocks:
        if block.names:
          points.append(neighbors_lib.unit(model.predict(*block.raw)[predictor_lib.EMBEDDING]))
        self._names += block.names
        self._keys += block.keys
        labels += _texts(block)
        damaged += block.damaged
        bar.update(len(block.names) + len(block.damaged))
    _tell_damaged(damaged, gallery)
    if k > len(self._names):
      raise errors.InputError(
        f'--neighbors={k}: the gallery has {wording.count(len(self._names), gallery.noun)}'
      )
    self._labels = np.array(labels, object)
    self._known = {*labels} - {None}
    self._k, self._kind, self._image = k, kind, gallery.image
    self._index = neighbors_lib.build(kind, np.concatenate(points))
    # _drawn: the first rows, for a picture. _hits: for each query with a label of the gallery,
    # whether its first k neighbors include the label. _first: the first queries, with their keys
    # and neighbors.
    self._drawn, self._hits, self._first = [], [], []

  def add(self, rows: list[list], block, embeddings: np.ndarray) -> None:
    """Appends the names and distances of the nearest inputs to `rows`, one row per input."""
    queries = neighbors_lib.unit(embeddings)
    found = self._without_self(self._index, queries, block.keys)
    if sum(len(keys) for _, keys, _ in self._first) < _CHECKED:
      self._first.append((queries, block.keys, found))
    apart = neighbors_lib.distances(queries, self._index.points, found)
    for row, label, numbers, far in zip(rows, _texts(block), found, apart, strict=True):
      for number, distance in zip(numbers, far, strict=True):
        row += [self._names[number], f'{distance:.6g}'] if number >= 0 else ['', '']
      if label in self._known:
        self._hits.append(
          np.logical_or.accumulate((self._labels[numbers] == label) & (numbers >= 0))
        )
      if len(self._drawn) < _ROWS:
        self._drawn.append((row[0], numbers, far))

  def _without_self(self, index, queries, keys: list) -> np.ndarray:
    """Returns the nearest inputs except for the query itself, int64 [q, k].

    An input with the query's key is the query itself. -1 stands for a missing input.
    """
    kept = np.full([len(queries), self._k], -1, np.int64)
    found = index.find(queries, min(self._k + 1, len(self._names)))
    for row, (numbers, key) in enumerate(zip(found, keys, strict=True)):
      others = [n for n in numbers if n < 0 or self._keys[n] != key][: self._k]
      kept[row, : len(others)] = others
    return kept

  def scores(self) -> dict[str, float]:
    """Returns the retrieval recall R@k, if all inputs of the gallery have labels.

    For an approximate index, also prints its recall.
    """
    if self._kind != neighbors_lib.EXACT:
      exact = neighbors_lib.Exact(self._index.points)
      of_exact = [self._without_self(exact, queries, keys) for queries, keys, _ in self._first]
      found = np.concatenate([of_index for *_, of_index in self._first])
      print(
        f'{self._kind} finds {neighbors_lib.recall(found, np.concatenate(of_exact)):.4f} of the'
        f' exact {self._k} neighbors of {wording.count(len(found), "input")}'
      )
    if not self._hits or None in self._labels or len(self._known) == 1:
      return {}
    mean = np.mean(self._hits, axis=0)
    return {f'retrieval_recall@{k}': float(mean[k - 1]) for k in catalog.AT if k <= self._k}

  def draw(self, image: Callable[[int], np.ndarray], path: str) -> None:
    """Draws the first inputs, with the neighbors of each input on its right."""
    from tff_xc.report import neighbor_pictures

    rows = []
    for place, (name, numbers, apart) in enumerate(self._drawn):
      near = [
        (self._names[n], self._image(n), distance)
        for n, distance in zip(numbers[:_COLUMNS], apart, strict=False)
        if n >= 0
      ]
      rows.append((name, image(place), near))
    with files.writing(f'--picture={path}', 'name another file'):
      neighbor_pictures.plot(rows, path)


def _texts(block) -> list[str | None]:
  """Returns the label of each input: the folder of an image, or a column. None: no label.

  The model may not know the label.
  """
  if block.folders:
    return [folder or None for folder in block.folders]
  if block.labels is None or scipy.sparse.issparse(block.labels):
    return [None] * len(block.names)
  return [label for [label] in block.labels]
