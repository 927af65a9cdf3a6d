"""Plans a run before it trains: sizes, bytes, rounds, and commands to start with.

  python -m launch.plan --num_classes=50000 --num_clients=3000 --classes_per_client=20
  python -m launch.plan --task=images --data_dir=photos --split=iid:20
  python -m launch.plan

The first command plans from three numbers. The second command reads the data of a task. Both
commands take the flags of `launch.train`. --algorithm may name several algorithms, separated
by commas. The third command, without flags, checks whether this machine can run the project.
Its exit status is 0 if all is well, and 1 if the machine has a problem.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import math
import os
import shlex
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from absl import flags

from launch import advice, app, plan_page, settings
from tasks import configuration, experiment, registry as tasks, task as task_lib
from tff_xc import errors, memory, precision, wording
from tff_xc.algorithms import registry as algorithms
from tff_xc.lazy import np, pd, tf
from tff_xc.measure import communication
from tff_xc.report import text_table

if TYPE_CHECKING:
  from tff_xc.data import client_data

# The algorithms in the order of the plan's table.
PLANNED = tuple(algorithms.ALGORITHMS)
# The task that generates data of given sizes, and its option for the size of the encoder.
SHAPE, _WIDTH = 'features', task_lib.HIDDEN_DIM
# The default task for a data set in memory, by the kind of its data; 'sets': label sets.
_TASKS = {'images': 'images', 'rows': 'table', 'sparse': 'sparse-text', 'sets': 'sparse-text-sets'}
# In the comparisons of docs/results, at most this share of the classes are negatives.
_NEGATIVES = 0.1
_HALF = {'message_precision': precision.BFLOAT16}
_MEGA, _CLASS = 10**6, 'class'
_HISTORY = 'history'  # A key of `Description.preprocessing` of item lists.
# Options that do not change the data that a task reads, so algorithms may have different values.
_NOT_OF_DATA = ('examples_per_round', 'feature_learning_rate', 'select_features', 'tie_items')
# Help texts of flags whose values are numbers of at least 0.
_NUMBERS = {
  'encoder_parameters': 'approximate number of weights of the encoder, for a plan without --task;'
  ' 0: the default',
  'max_megabytes_per_round': 'limit in megabytes (10^6 bytes) on the average message that a'
  ' client receives in a round, and on the average message that it sends; 0: no limit',
}


def plan(
  dataset_or_shape: client_data.FederatedDataset | Mapping[str, Any],
  task: str = '',
  *,
  max_megabytes_per_round: float = math.inf,
  encoder_parameters: float = 0,
  measure: bool = False,
  **changes,
) -> pd.DataFrame:
  """Plans a run in Python; returns a row for each algorithm.

  Args:
    dataset_or_shape: a data set, or a mapping of `num_classes`, `num_clients`,
      `classes_per_client` and other options of the task `features`.
    task: the task whose network is trained; default: the task for the user's own data of
      this kind.
    max_megabytes_per_round: the limit in megabytes (10^6 bytes) on the average message that
      a client receives in a round, and on the average message that it sends.
    encoder_parameters: the approximate number of weights of the encoder, for a plan from a
      mapping; 0: the default of the task.
    measure: whether to train each algorithm for three rounds, to measure the seconds of
      a round.
    **changes: flags of `launch.train` by name, such as `rounds=100`. With `data_dir`, the
      plan's commands name the files of a data set in memory, and can be run.

  Returns:
    A DataFrame with the columns algorithm, class_rows, negatives, bytes_down, bytes_up,
    message_precision, model_bytes, client_memory_bytes, memory_bytes and why_not ('' if the
    algorithm fits). With `measure`, the DataFrame also has seconds_per_round. `attrs` of the
    DataFrame has the rest of the plan that `--json` prints.
  """
  dataset = None
  if isinstance(dataset_or_shape, Mapping):
    task, changes = task or SHAPE, {**dataset_or_shape, **changes}
  else:
    dataset = dataset_or_shape
    described = dataset.description
    kind = 'sets' if described.label_sets else described.kind
    kind = 'items' if _HISTORY in described.preprocessing else kind
    task = task or _TASKS.get(kind, kind)
    changes = {'data_dir': dataset.name, **changes}
  planner = Planner(
    task,
    changes,
    encoder_parameters=encoder_parameters,
    most_bytes=max_megabytes_per_round * _MEGA,
    measures=measure,
  )
  found = planner.make(dataset)
  frame = pd.DataFrame(found.pop('algorithms'))
  frame.attrs = found
  return frame


@dataclasses.dataclass
class Planner:
  """Plans a run of every algorithm on the same data."""

  task: str
  changes: Mapping[str, Any]  # Flags of `launch.train` by name.
  chosen: Sequence[str] = ()  # Algorithms to show; (): all.
  # The number of encoder weights if the task is `SHAPE`; 0: the default.
  encoder_parameters: float = 0
  # The limit on the bytes that a client receives in a round, and on those that it sends.
  most_bytes: float = math.inf
  measures: bool = False  # Whether to train three rounds of each algorithm.
  # The `experiment.Experiment` and its `communication.Messages` by algorithm.
  _made: dict[str, tuple] = dataclasses.field(default_factory=dict)
  _kept: dict[tuple, Any] = dataclasses.field(default_factory=dict)  # See `_once`.

  def make(self, dataset: client_data.FederatedDataset | None = None) -> dict[str, Any]:
    """Returns the plan that `--json` prints, for `dataset` or else for the data that flags name."""
    for name in self.chosen:
      algorithms.get(name)
    if self.encoder_parameters:
      self.changes = {**self.changes, _WIDTH.name: self._width(self.encoder_parameters)}
    configs, names = self._configs(), [*self.chosen, *PLANNED]
    first = next(configs[name] for name in names if isinstance(configs[name], dict))
    if self.measures:
      experiment.install_runtime(first)
    self._given_dataset = dataset
    self.dataset = self._dataset(first)
    memory.require(
      4 * self.dataset.num_classes * first['options'].get('embedding_dim', 1),
      f'a table of {self.dataset.num_classes:,} classes',
      'lower --embedding_dim, or give data with fewer classes',
    )
    lines = {name: self._line(name, configs[name]) for name in PLANNED}
    made = [self._made[name][0] for name in names if name in self._made]
    self._first = next((each for each in made if each.algorithm.has_clients), None)
    if not self._first:
      raise errors.InputError(lines[names[0]]['why_not'])
    sent = map(_largest, lines.values())
    if (least := min(filter(None, sent), default=0)) > self.most_bytes:
      raise errors.InputError(
        f'--max_megabytes_per_round={self.most_bytes / _MEGA:g}: every algorithm sends'
        f' a client {wording.human_bytes(least)} or more in a round, even in bfloat16,'
        ' because of the encoder; raise the limit, or take a smaller encoder'
      )
    data, rounds = self._data(), self._rounds()
    starts, why_no_start = self._starts(lines, data, rounds)
    return {
      'task': self.task,
      'data': data,
      'algorithms': [lines[name] for name in self.chosen or PLANNED],
      'rounds': rounds,
      'starts': starts,
      'why_no_start': why_no_start,
      'most_bytes': None if math.isinf(self.most_bytes) else self.most_bytes,
    }

  def _given(self, name: str) -> dict[str, Any]:
    """Returns the given flags that apply to an algorithm."""
    names = {*configuration.SETTINGS, *tasks.OPTIONS, *algorithms.get(name).names}
    return {n: v for n, v in self.changes.items() if n in names}

  def _configs(self) -> dict[str, dict[str, Any] | str]:
    """Returns the configuration of each algorithm, or the reason why it refuses the flags.

    Raises InputError if all chosen algorithms refuse the flags, or if a flag applies to none
    of them.
    """
    chosen, found = self.chosen or PLANNED, {}
    for flag in self.changes:
      if not any(flag in self._given(name) for name in chosen):
        raise errors.InputError(
          f'--{flag} is not a hyper-parameter of {", ".join(chosen)}; leave it out'
        )
    for name in PLANNED:
      needs = {*algorithms.get(name).needs} & {*tasks.get(self.task).lacks}
      try:
        given = self._given(name)
        config = configuration.resolve(self.task, name, given)
        configuration.check_private(config)
        found[name] = config
      except errors.InputError as e:
        found[name] = f'it needs {min(needs)}' if needs else str(e)
    if all(isinstance(found[name], str) for name in chosen):
      raise errors.InputError(found[chosen[0]])
    return found

  def _width(self, wanted: float) -> int:
    """Returns the width of the largest perceptron with at most `wanted` weights."""
    if self.task != SHAPE or _WIDTH.name in self.changes:
      raise errors.InputError(
        f'--encoder_parameters sets --{_WIDTH.name} of a shape; leave out --task and'
        f' --{_WIDTH.name}'
      )
    given = {n: v for n, v in self.changes.items() if n in tasks.OPTIONS}
    options = tasks.get(SHAPE).checked_options(given)
    features, dim = options['num_features'], options['embedding_dim']
    # The three layers have width^2 + 2 half width + dim weights and biases.
    half = (features + dim + 2) / 2
    width = int(math.sqrt(half**2 + max(wanted - dim, 0)) - half)
    if not 1 <= width <= _WIDTH.most:
      raise errors.InputError(
        f'--encoder_parameters={wanted:g} asks for --{_WIDTH.name}={width}; the width is between'
        f' 1 and {_WIDTH.most:,}'
      )
    return width

  def _line(self, name: str, config: Mapping | str) -> dict[str, Any]:
    """Returns the plan's line for an algorithm; `why_not` is '' if the algorithm fits."""
    line: dict[str, Any] = {'algorithm': name, 'message_precision': ''}
    if isinstance(config, str):
      return {**line, 'why_not': config}
    try:
      line |= self._sizes(name, config)
      if _largest(line) > self.most_bytes:  # Messages in bfloat16 have half the size, and may fit.
        given = {**self._given(name), **_HALF}
        with contextlib.suppress(errors.InputError):
          line |= self._sizes(name, configuration.resolve(self.task, name, given)) | _HALF
      line['why_not'] = self._why_not(name, line)
      if self.measures and name in (self.chosen or PLANNED) and not line['why_not']:
        line['seconds_per_round'] = self._seconds(name)
    except errors.InputError as e:
      line['why_not'] = str(e)
    return line

  def _why_not(self, name: str, line: Mapping) -> str:
    if (sent := _largest(line)) > self.most_bytes:
      half = ' even in bfloat16' if line['message_precision'] else ''
      return (
        f'a client receives or sends {wording.human_bytes(sent)} in a round{half}, above the limit'
      )
    if line['memory_bytes'] > (free := memory.free_bytes()):
      needed = wording.human_bytes(line['memory_bytes'])
      return f'it takes {needed} of memory, and {wording.human_bytes(free)} are free'
    if self.dataset.train.largest_label_set > 1:
      return ''
    # If the algorithm warns only when each client has a single class, this warning is the reason.
    warnings = algorithms.get(name)(**self._values(name)).warnings
    one, two = (warnings(self.dataset.num_classes, most) for most in (1, 2))
    return next((text for text in one if text not in two), '')

  def _values(self, name: str) -> Mapping[str, Any]:
    return self._made[name][0].config['hyperparameters']

  def _sizes(self, name: str, config: Mapping) -> dict[str, Any]:
    """Returns the sizes of an algorithm's messages, model and memory."""
    made = experiment.with_data(config, self._with_network(config))
    made.algorithm.sampling.cohorts(made.dataset, 0)  # Raises InputError if clients are too few.
    messages = communication.messages(made.algorithm)
    self._made[name] = made, messages
    virtual = self._values(name).get('virtual_client_size', 0)
    own, rows, largest = self._own_rows(made), {}, {}
    for table in made.algorithm.tables:
      counts, sizes = own.get(table.name, own[_CLASS])
      asked = table.request.mean_rows(counts)
      weights = sizes if virtual else None
      rows[table.name] = float(np.average(asked, weights=weights))
      largest[table.name] = float(asked.max())
    of_round = messages.of_round(rows, largest)
    on_client = 2 * 4 * of_round['client_parameters_peak']
    threads = config['client_threads'] or len(os.sched_getaffinity(0))
    model = task_lib.bytes_of(made.algorithm.model.weight_specs())
    return {
      'class_rows': rows[_CLASS],
      'negatives': self._values(name).get('negatives', 0),
      'bytes_down': of_round['bytes_down_per_client'],
      'bytes_up': of_round['bytes_up_per_client'],
      'model_bytes': model,
      'client_memory_bytes': on_client,
      'memory_bytes': model + _state_bytes(made.algorithm) + threads * on_client,
    }

  def _own_rows(self, made: experiment.Experiment) -> Mapping[str, communication.OwnRows]:
    """Returns the rows of each client's classes and features, see `communication.own_rows`."""
    dataset, options = made.dataset, made.config['options']
    drawn = made.config['hyperparameters'].get('virtual_client_size', 0)
    drawn = drawn or options.get('examples_per_round', 0)
    tied = bool(made.algorithm.model.encoder.tied)
    return self._once(
      ('rows', _key_of_data(options), drawn, tied),
      lambda: communication.own_rows(dataset.train, dataset.num_classes, drawn, tied),
    )

  def _dataset(self, config: Mapping) -> client_data.FederatedDataset:
    """Returns the data set that the caller gave, or reads the data set of a configuration."""
    if self._given_dataset:
      return self._given_dataset
    options = config['options']
    # Reading prints a summary of the data. One is enough if networks need different examples.
    again = any(kind == 'data' for kind, *_ in self._kept)
    with contextlib.redirect_stderr(io.StringIO() if again else sys.stderr):
      return self._once(
        ('data', _key_of_data(options)),
        lambda: _read(tasks.get(self.task), config['data_dir'], options),
      )

  def _with_network(self, config: Mapping) -> task_lib.Loaded:
    options, task = config['options'], tasks.get(self.task)
    key = 'network', repr(sorted(options.items()))
    return self._once(key, lambda: task.with_network(self._dataset(config), options))

  def _once(self, key: tuple, make: Callable[[], Any]) -> Any:
    """Returns `make()`. The result is kept for later calls with the same key."""
    if key not in self._kept:
      self._kept[key] = make()
    return self._kept[key]

  def _seconds(self, name: str) -> float:
    """Trains three rounds; returns their median seconds.

    The first round includes compiling, and hardly affects the median.
    """
    given = {**self._given(name), 'rounds': 3, 'eval_every': 3}
    config = configuration.resolve(self.task, name, given)
    loaded = self._with_network(config)
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(sys.stderr):
      summary = experiment.with_data(config, loaded, folder).run(folder)
    return summary['seconds_per_round_median']

  def _data(self) -> dict[str, Any]:
    """Describes the data and the model in numbers."""
    from tff_xc.measure import skew

    made = self._first
    dataset, train = made.dataset, made.dataset.train
    counts = skew.class_counts(*train.owned_labels(), (len(train.partition), dataset.num_classes))
    owners = np.bincount(counts.indices, minlength=dataset.num_classes)
    check = dataset.warnings()
    for number, who in enumerate(('no client', 'only one client')):
      if few := int((owners == number).sum()):
        share = f'{few / dataset.num_classes:.0%} of all'
        check.append(f'{who} has examples of {wording.count(few, "class")} ({share})')
    model = made.algorithm.task_model or made.algorithm.model
    specs = model.weight_specs()
    table, whole = task_lib.bytes_of(specs.tables[_CLASS]), task_lib.bytes_of(specs)
    return {
      'classes': dataset.num_classes,
      'clients': len(train.partition),
      'examples': len(train.partition.numbers),
      'examples_per_client': skew.spread(train.partition.sizes),
      'classes_per_client': skew.spread(np.diff(counts.indptr)),
      'clients_per_class': skew.spread(owners),
      'emd': skew.emd(counts),
      'test_examples': 0 if dataset.test is None else len(dataset.test),
      'encoder_parameters': (whole - table) // 4,
      'class_table_bytes': table,
      'class_table_share': table / whole,
      'embedding_dim': model.encoder.embedding_dim,
      'check': check,
    }

  def _rounds(self) -> dict[str, Any]:
    """Returns how often clients and classes participate in the planned number of rounds."""
    made = self._first
    train, rounds = made.dataset.train, made.config['rounds']
    each = made.config['hyperparameters']['clients_per_round']
    active = int((train.partition.sizes > 0).sum())
    own = self._own_rows(made)[_CLASS]
    visits = rounds * each / active
    return {
      'rounds': rounds,
      'is_given': 'rounds' in self.changes,
      'clients_per_round': each,
      'visits_of_a_client': visits,
      'visits_of_a_class': visits * int(own.counts.sum()) / len(train.classes),
      'rounds_for_visits': [math.ceil(n * active / each) for n in advice.VISITS],
    }

  def _starts(self, lines, data, rounds) -> tuple[list[dict[str, Any]], str]:
    """Returns the recommended commands, best first, and the reason if there are none."""
    (few, many), described = (rounds['rounds_for_visits'], self.dataset.description)
    number = rounds['rounds'] if rounds['is_given'] else max(rounds['rounds'], few)
    facts = advice.Facts(
      data['classes'],
      data['clients'],
      data['classes_per_client']['mean'],
      data['class_table_share'],
      rounds['visits_of_a_client'] * number / rounds['rounds'],
      not lines['fullsoftmax']['why_not'],
      described.label_sets,
      _HISTORY in described.preprocessing,
    )
    wanted = [(facts, number, '')]
    if facts.visits < advice.VISITS[0]:
      later = facts._replace(visits=advice.VISITS[0])
      wanted.append((later, few, 'This takes more rounds. '))
    elif facts.table_share >= 0.2 and facts.fits_all and not facts.label_sets:
      limited = facts._replace(fits_all=False)
      wanted.append((limited, number, 'This sends fewer bytes. '))
    possible = [n for n in self.chosen or PLANNED if not lines[n]['why_not']]
    found: dict[str, dict[str, Any]] = {}
    for of, count, before in wanted:
      rule = advice.rule_for(of)
      for name in rule.use:
        if name in possible and name not in found:
          found[name] = self._start(lines[name], of, count, before + rule.why)
    if self.chosen and possible and not found:
      name, why = possible[0], 'You named it; no rule recommends it here.'
      found[name] = self._start(lines[name], facts, number, why)
    if not found:
      name = [*self.chosen, *advice.rule_for(facts).use][0]
      others = [n for n in possible if algorithms.get(n).has_clients]
      change = 'Change that' if math.isinf(self.most_bytes) else 'Raise the limit'
      other = f'train --algorithm={others[0]}, which fits' if others else 'leave out --algorithm'
      return [], f'{name} does not: {lines[name]["why_not"]}. {change}, or {other}'
    if len(found) == 1:
      [name], count = found, many if many > number else 2 * number
      why = 'This is the same with a different number of rounds, to compare.'
      found[why] = self._start(lines[name], facts, count, why)
    return [*found.values()][:3], ''

  def _start(self, line: Mapping, facts, rounds: int, why: str) -> dict[str, Any]:
    """Returns a recommended command, and the measured comparison that supports it."""
    name = line['algorithm']
    flags_, values = {**self._given(name), 'rounds': rounds}, self._values(name)
    if 'clients_per_round' in values:
      flags_['clients_per_round'] = values['clients_per_round']
    if line['message_precision']:
      flags_ |= _HALF
    if 'negatives' in values and 'negatives' not in flags_:
      flags_['negatives'] = self._negatives(line)
    sizes = self._sizes(name, configuration.resolve(self.task, name, flags_))
    words = [f'--task={self.task}', f'--algorithm={name}']
    words += [f'--{flag}={value}' for flag, value in flags_.items()]
    near = advice.evidence(facts, name)
    return {
      'algorithm': name,
      'why': why,
      'command': shlex.join(['python', '-m', 'launch.train', *words]),
      'rounds': rounds,
      'negatives': sizes['negatives'],
      'bytes_down': sizes['bytes_down'],
      'bytes_up': sizes['bytes_up'],
      'evidence': near and near.sentence(name),
      'page': near and f'docs/{near.page}',
      'is_near': bool(near) and facts.distance(near.facts) <= advice.NEAR,
    }

  def _negatives(self, line: Mapping) -> int:
    """Returns the number of negatives to recommend.

    Without a limit on bytes, this is the default. With a limit, it is the largest number within
    the limit, but at most a tenth of the classes (or the default, if that is larger).
    """
    classes = self.dataset.num_classes
    wanted = default = line['negatives']
    if not math.isinf(self.most_bytes):
      wanted = max(default, int(classes * _NEGATIVES))
      table = self._made[line['algorithm']][1].tables[_CLASS]
      down = (self.most_bytes - line['bytes_down']) // table.down
      up = (self.most_bytes - line['bytes_up']) // table.up
      wanted = min(wanted, default + int(min(down, up)))
    return min(wanted, classes - 1)


def _largest(line: Mapping) -> float:
  """Returns the bytes of a client's larger message, down or up; 0 if there are no clients."""
  return max(line.get('bytes_down', 0), line.get('bytes_up', 0))


def _key_of_data(options: Mapping) -> str:
  shaping = {n: v for n, v in options.items() if n not in _NOT_OF_DATA}
  return repr(sorted(shaping.items()))


def _read(task: task_lib.Task, data_dir: str, options: Mapping):
  """Reads a task's data. `Task.find` reports missing or incomplete data first."""
  if task.find and isinstance(part := task.find(data_dir), task_lib.Part):
    print(f'{data_dir}: the data are incomplete, {part}', file=sys.stderr)
  return (task.look or task.read)(data_dir, options)


def _state_bytes(algorithm) -> int:
  """Returns the bytes that the server keeps in addition to the model."""
  from tff_xc.round import parts

  specs = algorithm.model.weight_specs()
  with tf.Graph().as_default():  # Only shapes are needed, so nothing is computed.
    tables = [t.initialize(specs.tables[t.name]) for t in algorithm.tables]
    encoder = algorithm.encoder_optimizer.initialize(specs.encoder)
    return task_lib.bytes_of((tables, encoder, parts.initial(algorithm)))


def main(arguments: Sequence[str]) -> None:
  values, changes = flags.FLAGS, settings.changes()
  own = ('task', 'algorithm', 'measure', 'json', 'output', *_NUMBERS)
  given = {*changes, *(name for name in own if values[name].present)}
  if not given:
    from launch import machine

    sys.exit(machine.tell())
  if not {*tasks.get(SHAPE).option_values(), 'encoder_parameters', 'task'} & given:
    raise errors.InputError(
      'no flag names the data; give a shape, such as --num_classes=1000'
      ' --num_clients=100 --classes_per_client=10, or --task and --data_dir'
    )
  task = values.task or SHAPE
  tasks.get(task).check_data_dir(changes.get('data_dir'))
  planner = Planner(
    task,
    changes,
    chosen=values.algorithm.split(',') if values.algorithm else (),
    encoder_parameters=values.encoder_parameters,
    most_bytes=values.max_megabytes_per_round * _MEGA or math.inf,
    measures=values.measure,
  )
  found = planner.make()
  written = plan_page.write(found, values.output) if values.output else ''
  text = plan_page.to_text(found, text_table.terminal_width()) + written
  print(json.dumps(found, indent=2) + '\n' if values.json else text, end='')


def _narrow(arguments: Sequence[str]) -> None:
  """With several algorithms, --help lists the same flags as without --algorithm."""
  if ',' in (flags.FLAGS.algorithm or ''):
    flags.FLAGS.algorithm = None
  settings.narrow_help(arguments)


if __name__ == '__main__':
  # Flags are not defined at import, because other commands have flags with the same names.
  settings.define_experiment_flags()
  settings.define_picture_flag()
  for _name, _help in _NUMBERS.items():
    app.define_float(_name, 0.0, _help, least=0.0, most=1e9)
  for _name, _help in {
    'measure': 'train each algorithm for three rounds, to measure the seconds of a round',
    'json': 'print the plan as JSON',
  }.items():
    flags.DEFINE_bool(_name, False, _help)
  flags.DEFINE_string(
    'output', None, 'folder to write plan.json to, and plan.png, a picture of the message sizes'
  )
  app.run(main, __doc__, _narrow, takes_arguments=False)
