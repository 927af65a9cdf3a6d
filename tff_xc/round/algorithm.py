"""Defines an algorithm by its answers to the four questions of `tff_xc.round`."""

import dataclasses
import types
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import tensorflow as tf
import tensorflow_federated as tff

from tff_xc import classifier, errors
from tff_xc.round import (
  local_training as local_training_lib,
  losses,
  optimizers,
  parts as parts_lib,
  request,
  tables as tables_lib,
)

# The metrics of every round. The algorithm's tables and parts may add metrics.
_METRICS = (
  'loss',
  'local_accuracy',
  'examples',
  'clients',
  'clients_dropped',
  'local_batches',
  'loss_largest',
  'clients_rows_clipped',
)


class Sampling(Protocol):
  """Draws the clients of each round.

  `has_clients` is False for centralized training, in which no client receives or sends messages.
  """

  has_clients: bool

  def cohorts(self, dataset: Any, seed: int) -> Callable[[int], Any]:
    """Returns a function from a round number, counted from 0, to the cohort of this round."""


# `_shown` abbreviates texts with more characters than this.
_MOST_SHOWN = 100


def _shown(answer: Any) -> str:
  """Returns a short text of a value: its type, its learning rate and non-default fields."""
  if isinstance(answer, types.FunctionType):
    return answer.__name__
  if isinstance(answer, classifier.EmbeddingClassifier):
    return 'model'
  if dataclasses.is_dataclass(answer):
    of = {f.name: f.default for f in dataclasses.fields(answer)}
    inner = {name: _shown(getattr(answer, name)) for name in of}
    inner = {
      name: text
      for name, text in inner.items()
      if name == 'learning_rate' or text != _shown(of[name])
    }
  elif isinstance(answer, tf.TensorSpec):
    return f'{answer.dtype.name} {answer.shape.as_list()}'
  elif isinstance(answer, tff.learning.optimizers.Optimizer):
    # TFF stores the learning rate in private fields.
    inner = {
      name.strip('_'): str(value)
      for name, value in vars(answer).items()
      if isinstance(value, int | float) or dataclasses.is_dataclass(value)
    }
  else:
    text = repr(answer)
    if len(text) <= _MOST_SHOWN and ' at 0x' not in text and '\n' not in text:
      return text
    inner = {'...': ''}
  parts = ', '.join(f'{n}={text}' if text else n for n, text in inner.items())
  return f'{type(answer).__name__.strip("_")}({parts})'


@dataclasses.dataclass(frozen=True)
class Algorithm:
  """A federated algorithm: everything that defines its training rounds.

  To change an algorithm, options and functions such as `own_rows` return a copy with some
  attributes changed.

  Attributes:
    model: the embedding classifier.
    tables: how clients request the rows of each table (question 1), how the server merges these
      rows (question 3), and how it updates the table (question 4). The first table is 'class'. If a
      table of the encoder is not listed, every client receives the whole table, and the server adds
      the mean change.
    loss: the loss that a client minimises (question 2), with one value for each example.
    penalties: terms that are added to the mean loss.
    local_training: the optimizer and steps of local training.
    head_epochs: the number of passes over a client's examples, before local training, that train
      only the class rows. If `head_epochs` is positive, class rows must be `frozen`, so that local
      training does not change them.
    model_aggregator: a `tff.aggregators` factory that averages the encoder updates (question 3).
      None: the weighted mean. The factory does not average rows of tables. A differentially private
      factory would send these rows without noise, so it is refused if clients send rows.
    parts: further steps of a round: messages and client states of the algorithm, and options such
      as bounds, privacy and compression. The order of this tuple is the order in which the parts
      run.
    weighting: the weight of a client in means. 'examples' is its number of examples, and 'uniform'
      is 1.
    encoder_optimizer: the server's optimizer for the encoder (question 4).
    moves_encoder_state: whether the server adds the mean change to encoder weights without
      gradients, such as batch statistics.
    frozen: names of encoder weights, encoder state and tables that clients do not train. A frozen
      table has the merge `merge.KeepRows` (see `tff_xc.round.frozen`).
    sampling: draws the clients of each round. None: the caller chooses them.
    measures_largest_loss: whether a round's metrics include the largest mean loss of any client.
    task_model: the user's model, if the algorithm trains a different one. For example, FedMLH
      replaces the head. `bytes_saving_vs_fullsoftmax` compares message sizes with those of this
      model. None: `model`.
  """

  model: classifier.EmbeddingClassifier
  tables: tuple[tables_lib.Table, ...]
  loss: losses.Loss
  penalties: tuple[losses.Penalty, ...] = ()
  local_training: local_training_lib.LocalTraining = dataclasses.field(
    default_factory=local_training_lib.LocalTraining
  )
  head_epochs: int = 0
  model_aggregator: tff.aggregators.AggregationFactory | None = None
  parts: tuple[parts_lib.Part, ...] = ()
  weighting: str = 'examples'
  encoder_optimizer: tff.learning.optimizers.Optimizer = dataclasses.field(
    default_factory=optimizers.build_sgd
  )
  moves_encoder_state: bool = True
  frozen: frozenset[str] = frozenset()
  sampling: Sampling | None = None
  measures_largest_loss: bool = False
  task_model: classifier.EmbeddingClassifier | None = None

  def __post_init__(self):
    if self.weighting not in ('examples', 'uniform'):
      raise ValueError(f'unknown weighting {self.weighting!r}')
    named = tables_lib.by_name(self.tables)
    unknown = set(named) - {classifier.CLASS, *self.model.encoder.tables}
    if unknown or next(iter(named), None) != classifier.CLASS:
      raise ValueError(
        f'tables are {list(named)}: expected {classifier.CLASS!r} first, then'
        f' some of {list(self.model.encoder.tables)}'
      )
    own = self.model.encoder.tables
    others = tuple(
      named.get(name) or tables_lib.Table(name, request.AllRows(own[name].num_rows)) for name in own
    )
    object.__setattr__(self, 'tables', (self.tables[0], *others))
    for table in self.tables:
      if table.name in self.frozen and table.merge.sends_rows:
        raise ValueError(f'the table {table.name!r} is frozen: merge it by KeepRows')
    if self.head_epochs and classifier.CLASS not in self.frozen:
      raise ValueError('head_epochs train class rows that are otherwise frozen')
    names = [part.name for part in self.parts]
    if len({*names}) < len(names):
      raise ValueError(f'two parts have one name: {names}')
    if sum(part.spec is not None for part in self.parts) > 1:
      raise ValueError('only one part can keep something')
    taken = {*_METRICS}
    for table in self.tables:
      taken |= {f'{table.name}_rows', f'{table.name}_rows_largest'}
    for name in (n for p in (*self.parts, *self.tables) for n in p.metrics):
      if name in taken:
        raise ValueError(f"a round has a metric {name!r} already; rename the step's")
      taken.add(name)

  def __repr__(self) -> str:
    """Returns a few lines of text: the model, the tables and other values that are not defaults."""
    model, lines = self.model, {}
    spec = _shown(model.encoder.example_spec)
    lines['model'] = (
      f'{spec} -> {model.encoder.embedding_dim}, {_shown(model.head)},'
      f' {model.num_classes:,} classes'
    )
    for table in self.tables:
      steps = ''.join(f', then {_shown(step)}' for step in table.steps)
      lines[f'table {table.name!r}'] = (
        f'{_shown(table.request)}, {_shown(table.merge)}, {_shown(table.optimizer)}{steps}'
      )
    for field in dataclasses.fields(self):
      value = _shown(getattr(self, field.name))
      if field.name not in lines and value != _shown(field.default):
        lines[field.name] = value
    for part in self.parts:
      lines[f'part {part.name!r}'] = _shown(part)
    del lines['tables']
    lines.pop('parts', None)
    body = ''.join(f'  {name}: {text}\n' for name, text in lines.items())
    return f'Algorithm(\n{body})'

  @property
  def client_state(self) -> parts_lib.Part | None:
    """The part whose state (`spec`) clients keep between rounds, or None."""
    return next((part for part in self.parts if part.spec is not None), None)

  def part(self, name: str) -> Any:
    """Returns the part with this name, or None."""
    return next((part for part in self.parts if part.name == name), None)

  def with_part(self, part: parts_lib.Part) -> 'Algorithm':
    """Returns the algorithm with `part`, which replaces a part of the same name."""
    others = tuple(p for p in self.parts if p.name != part.name)
    return dataclasses.replace(self, parts=(*others, part))

  @property
  def has_clients(self) -> bool:
    """Whether there are clients that receive and send messages."""
    return self.sampling is None or self.sampling.has_clients

  def with_table(self, table: tables_lib.Table) -> 'Algorithm':
    """Returns the algorithm with `table` in place of its table of the same name."""
    if table.name not in tables_lib.by_name(self.tables):
      raise ValueError(f'the algorithm has no table {table.name!r}')
    return dataclasses.replace(
      self, tables=tuple(table if t.name == table.name else t for t in self.tables)
    )


def own_rows(algorithm: Algorithm, name: str, most: int, optimizer: Any = None) -> Algorithm:
  """Returns the algorithm with clients that request only the needed rows of an encoder table.

  `name` is the table's name. A client needs the rows that its examples name. `most` is the largest
  number of distinct rows that any client needs. If `most` is 0, clients still receive the whole
  table. `optimizer` is the server's optimizer for the table.
  """
  table = tables_lib.by_name(algorithm.tables).get(name)
  if table is None or name == classifier.CLASS:
    raise ValueError(f'the encoder has no table {name!r}')
  if most:
    kept = algorithm.client_state and algorithm.client_state.spec
    if isinstance(kept, Mapping) and name in kept.get('tables', ()):
      raise errors.InputError(
        f'clients keep a value for each row of the table {name!r}: they have to'
        ' receive all of it, and not only their own rows'
      )
    if getattr(table.merge, 'secure_bound', None) is not None:
      raise errors.InputError(
        'secure sums are of whole tables: let clients receive all rows'
        ' (--select_features=false), or leave out --secure_sums'
      )
    own = request.OwnAndSampled(table.request.num_rows, most)
    table = dataclasses.replace(table, request=own)
  if optimizer is not None and table.merge.takes_optimizer:
    table = dataclasses.replace(table, optimizer=optimizer)
  return algorithm.with_table(table)
