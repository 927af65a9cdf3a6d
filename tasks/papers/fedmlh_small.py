"""FedMLH's experiments in minutes, and what is expected of them."""

from collections.abc import Sequence

from tasks.papers import result
from tasks.papers import table

_TASK = 'sparse-words-eurlex-sets'
_ROUNDS = {'rounds': 30}
_WHAT = (
  'Procedural bags of words of the size of EURLex-4K, 30 rounds, one seed; the round'
  ' is chosen by validation examples'
)


def _small(rows, expected, **changes) -> table.Small:
  """Returns rows without what the published code does to its own files."""
  kept = [row._replace(changes=changes) for row in rows]
  return table.Small(_WHAT, table.shrunk(kept, _TASK, _ROUNDS), tuple(expected))


def scores(rows: Sequence[table.Row]) -> table.Small:
  """Returns Table 3, and figures 3 and 4: `rows` are of EURLex."""
  return _small(
    rows,
    (
      result.Expected('pc@1', 'fedmlh', 8, than='fedavg'),
      result.Expected('pc@3', 'fedmlh', 6, than='fedavg'),
      result.Expected('pc@5', 'fedmlh', 5, than='fedavg'),
    ),
  )


def best_round(rows: Sequence[table.Row]) -> table.Small:
  """Returns Table 6: `rows` are of EURLex."""
  ahead = result.Expected('best_round', 'fedmlh', most=0, than='fedavg')
  return _small(rows, (ahead,))


def seconds(rows: Sequence[table.Row]) -> table.Small:
  """Returns Table 7: `rows` are of EURLex."""
  faster = result.Expected('seconds', 'fedmlh', most=0, than='fedavg')
  return _small(rows, (faster,))


def sizes(rows: Sequence[table.Row]) -> table.Small:
  """Returns figure 5: `rows` are of EURLex, with hash_tables and hash_buckets."""
  label = 'fedmlh hash_tables={} hash_buckets={}'.format
  best = lambda least, of, than: result.Expected(
    'pc@1', label(*of), least, than=label(*than)
  )
  return table.Small(
    _WHAT,
    table.shrunk(rows, _TASK, _ROUNDS),
    (
      best(2, (4, 250), (2, 250)),
      best(0, (8, 250), (4, 250)),
      best(0, (4, 250), (4, 1000)),
    ),
  )
