"""FedAwS's experiments in minutes, and what is expected of them."""

from collections.abc import Sequence

from tasks.papers import result
from tasks.papers import table

_CLASSES = 10


def one_class_a_client(rows: Sequence[table.Row]) -> table.Small:
  """Returns Table 1 on ten classes of handwriting.

  Args:
    rows: of CIFAR-10 with ResNet-8.
  """
  shared = {
    'num_classes': _CLASSES,
    'num_clients': _CLASSES,
    'classes_per_client': 1,
    'examples_per_client': 400,
    'clients_per_round': _CLASSES,
    'local_steps': 1,
    'steps_per_round': _CLASSES,
    'spreadout_margin': 1.4,
    'rounds': 200,
    'eval_every': 50,
  }
  rows = [row._replace(changes={}) for row in rows]
  return table.Small(
    'Ten classes of procedural handwriting, a client each, all in every round, 200'
    ' rounds of one batch, one seed' + result.REDESIGNED,
    table.shrunk(rows, 'glyphs', shared),
    (
      result.Expected('top1', 'fedaws_baseline1', most=40),
      result.Expected('top1', 'fedaws', 30, than='fedaws_baseline1'),
      result.Expected('top1', 'fedaws', -5, than='fedaws_baseline2'),
      result.Expected('top1', 'centralized', -2, than='fedaws'),
    ),
  )


# As on Bibtex and Delicious, see docs/fedaws.md.
_WORDS = {
  'num_classes': 500,
  'clients_per_round': 128,
  'client_weighting': 'examples',
  'row_update': 'mean',
  'rounds': 200,
  'eval_every': 50,
}
_WHAT = (
  'Procedural bags of words, 500 labels by a power law, one kept of each training'
  ' example, 128 clients a round, 200 rounds, one seed; clients weigh by examples,'
  ' and rows move by the mean'
)


def many_labels(rows: Sequence[table.Row]) -> table.Small:
  """Returns Table 3 on procedural words.

  Args:
    rows: of AmazonCat.
  """
  return table.Small(
    _WHAT,
    table.shrunk(
      [row._replace(changes={}) for row in rows], 'sparse-words', _WORDS
    ),
    (
      result.Expected('p@1', 'fedaws', 2, than='fedaws_baseline1'),
      result.Expected('p@1', 'fedaws', -2, than='fedaws_baseline2'),
      result.Expected('p@5', 'fedaws', 0, than='fedaws_baseline2'),
      result.Expected('p@1', 'centralized', -5, than='fedaws'),
    ),
  )


def neighbours_and_weights(rows: Sequence[table.Row]) -> table.Small:
  """Returns Table 4 on procedural words.

  Args:
    rows: of AmazonCat: four k with lambda = 10, three lambda with k = 100.
  """
  label = 'fedaws spreadout_neighbours={} spreadout_weight={}'.format
  # As the tasks of the paper's sets have it for k = 100. First measurements had
  # that of k = 10, with which already lambda = 10 diverged.
  rate = {'spreadout_learning_rate': 0.0001}
  # The same setting is the centre of both sweeps.
  rows = [row for i, row in enumerate(rows) if row not in rows[:i]]
  return table.Small(
    _WHAT + result.REDESIGNED,
    table.shrunk(rows, 'sparse-words', _WORDS | rate),
    (
      result.Expected('p@1', label(100, 10.0), 2, than=label(100, 1.0)),
      # The steps of lambda = 100 and of all others diverge, see docs/fedaws.md.
      result.Expected('p@1', label(100, 10.0), 2, than=label(100, 100.0)),
      result.Expected('p@1', label(100, 10.0), 0, than=label(0, 10.0)),
    ),
  )
