"""How a round of FedSS grows, in seconds and peak memory, with one size at a time.

  python -m launch.benchmark growth --output=growth.json

A contender 'NAME@SIZE' changes one size; the others stay as in `_BASE`. 'NAME_1@SIZE'
trains its clients on one thread, the others on one for each core. Every contender is a
process of its own, which runs rounds for a second, after one that traces; the time is
their median. The picture is written beside the report, as growth.png.
"""

import dataclasses
import os
import statistics
import time

from launch.benchmarks import spec

_BASE = {
  'num_classes': 10_000,
  'clients': 8,
  'examples': 20,
  'embedding_dim': 64,
}
_ONE = '_1'
_LEAST_SECONDS = 1.0
# Small, since a client may have 10^5 examples.
_NETWORK = {'image_size': 8, 'filters': 16, 'groups': 4}
_BATCH_SIZE = 32
# The peak of a process: what TensorFlow takes, and so many times the class table, which
# is there with its momentum and while it is made.
_OWN_BYTES, _TABLES = 1e9, 5


@dataclasses.dataclass(frozen=True)
class Settings:
  """The values of each size."""

  num_classes: tuple[int, ...] = tuple(10**k for k in range(3, 8))  # n
  clients: tuple[int, ...] = tuple(10**k for k in range(5))  # Of a round.
  examples: tuple[int, ...] = tuple(10**k for k in range(6))  # Of a client.
  embedding_dim: tuple[int, ...] = (16, 64, 256, 1024, 2048)


def _sizes(contender: str) -> tuple[dict[str, int], int]:
  """Returns all sizes of a contender, and its client threads or 0."""
  name, size = spec.name_and_size(contender)
  field = name.removesuffix(_ONE)
  return _BASE | {field: int(size)}, int(field != name)


def build(contender: str, settings: Settings):
  """Builds a contender, in its own process."""
  del settings  # Its size is in its name.
  from launch.benchmarks import classes
  from launch.benchmarks import rounds
  from tff_xc.runtime import registry

  sizes, threads = _sizes(contender)
  registry.install('in_process', client_threads=threads)
  process = classes.make_process(
    sizes['num_classes'],
    _BATCH_SIZE,
    embedding_dim=sizes['embedding_dim'],
    **_NETWORK,
  )
  once = rounds.of_process(
    process,
    process.initialize(),
    classes.make_clients(
      sizes['clients'],
      sizes['num_classes'],
      sizes['examples'],
      _NETWORK['image_size'],
    ),
    lambda state, metrics: {'loss': float(metrics['loss'])},
  )

  def run():
    check, seconds = once()['check'](), []
    while sum(seconds) < _LEAST_SECONDS:
      started = time.perf_counter()
      once()
      seconds.append(time.perf_counter() - started)
    return {'seconds': statistics.median(seconds), 'check': check}

  return run


def _all(settings: Settings) -> list[str]:
  return [
    spec.at(field + threads, size)
    for field, sizes in dataclasses.asdict(settings).items()
    for threads in ('', _ONE)
    for size in sizes
  ]


def _too_large(settings: Settings) -> list[str]:
  """Returns the contenders whose class table does not fit in this machine."""
  most = os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE')

  def peak(contender):
    sizes, _ = _sizes(contender)
    table = 4 * sizes['num_classes'] * sizes['embedding_dim']
    return _OWN_BYTES + _TABLES * table

  return [each for each in _all(settings) if peak(each) > most]


def _contenders(settings: Settings) -> list[str]:
  left_out = _too_large(settings)
  return [each for each in _all(settings) if each not in left_out]


def _notes(settings: Settings) -> list[str]:
  others = ', '.join(f'{name}={size}' for name, size in _BASE.items())
  return [
    f'Sizes that do not grow: {others}. NAME_1 has one client thread.',
    'An exponent is that of what a size adds to the smallest one, over sizes that '
    'take at least half more; – where fewer than two do.',
    *(
      f'{name} runs only if named: this machine has not enough memory.'
      for name in _too_large(settings)
    ),
  ]


def draw(found, path) -> None:
  """Draws seconds and memory over each size, with both axes logarithmic."""
  from launch.benchmarks import report
  from tff_xc.report import pictures

  rows = [
    (unit, report.by_size(found[key]))
    for key, unit in (
      ('median_seconds', 'seconds a round'),
      ('peak_mb', 'peak memory, MB'),
    )
  ]
  drawn = [name for name in _BASE if {name, name + _ONE} & {*rows[0][1]}]
  places = [(*row, name) for row in rows for name in drawn]
  size = 4.0 * len(drawn), 6.8
  figure, axes = pictures.panels(len(places), len(drawn), size)
  for ax, (unit, of, name) in zip(axes, places, strict=True):
    styles = pictures.styles()
    for line, label in ((name, 'all cores'), (name + _ONE, 'one thread')):
      values, style = of.get(line), next(styles) | {'markersize': 4}
      if values:
        slope = report.exponent(values)
        label += '' if slope is None else f': exponent {slope:.2f}'
        ax.loglog([*values], [*values.values()], **style, label=label)
    # One scale a row, so that slopes can be compared.
    every = [v for values in of.values() for v in values.values()]
    ax.set_ylim(min(every) / 1.5, max(every) * 1.5)
    pictures.label(ax, '', name, unit)
    ax.legend(frameon=False, fontsize=9)
  pictures.save(figure, path)


BENCHMARK = spec.Benchmark(
  name='growth',
  summary='a round of FedSS as classes, clients, examples, embeddings grow',
  settings=Settings,
  small={
    'num_classes': (100, 200, 400),
    'clients': (1,),
    'examples': (1,),
    'embedding_dim': (4,),
  },
  contenders=_contenders,
  optional=_too_large,
  notes=_notes,
  groups=tuple((name, name + _ONE) for name in _BASE),
  tolerances={'loss': 1e-6},
  build=build,
  draw=draw,
  fresh=True,
  passes=1,
  warm_up=0,
)
