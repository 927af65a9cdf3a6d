"""FedSS's experiments in minutes, and what is expected of them."""

from tasks.papers import fedss_numbers
from tasks.papers import result
from tasks.papers import table

# A client has about a hundredth of the classes: in first measurements those of 400
# and 600 classes had 20 of them, and PosOnly learnt from these alone. Centralised
# training sees as many examples a round.
_CLIENTS = 8
_EXAMPLES = 60
_SMALL = {
  'num_clients': 600,
  'classes_per_client': 5,
  'examples_per_client': _EXAMPLES,
  'clients_per_round': _CLIENTS,
  'steps_per_round': _CLIENTS * _EXAMPLES // 32,
  'rounds': 200,
  'eval_every': 40,
}
_HANDWRITING = (
  'Procedural handwriting of {num_classes:,} classes, {num_clients} clients of'
  ' {classes_per_client} classes, 8 a round, 200 rounds from scratch, one seed'
)


def _small(
  rows, task, classes, algorithms, expected, note=result.REDESIGNED, **changes
):
  """Returns the small form of a table.

  Args:
    rows: the table's.
    task: whose rows are taken.
    classes: n.
    algorithms: algorithm -> the m that are taken, () for one without.
    expected: what it is to show.
    note: on the form.
    **changes: further settings.
  """
  kept = [
    row
    for row in rows
    if row.task == task
    and row.changes.get('negatives') in (algorithms[row.algorithm] or [None])
  ]
  shared = {**_SMALL, 'num_classes': classes, **changes}
  small_task = (
    'glyphs-retrieval' if 'retrieval_classes' in changes else 'glyphs'
  )
  return table.Small(
    _HANDWRITING.format(**shared) + note,
    table.shrunk(kept, small_task, shared),
    expected,
  )


_METHODS = {
  'fedss': (5, 80),
  'negonly': (5, 80),
  'posonly': (),
  'fedaws_posonly': (),
  'fullsoftmax': (),
  'centralized': (),
}
_ALL_M = dict.fromkeys(('fedss', 'negonly'), (5, 10, 20, 40, 80)) | {
  name: () for name in _METHODS if name not in ('fedss', 'negonly')
}


def _expected(metric, few, many, push, gain):
  """Returns the order of the paper's methods.

  Args:
    metric: the score.
    few: the fewest negatives.
    many: the most.
    push: points by which FedSS with few is ahead of NegOnly with few.
    gain: points by which FedSS with many is ahead of PosOnly.
  """
  best = f'fedss negatives={many}'
  return (
    result.Expected(
      metric, f'fedss negatives={few}', push, than=f'negonly negatives={few}'
    ),
    result.Expected(metric, best, gain, than='posonly'),
    result.Expected(metric, best, 0, than=f'fedss negatives={few}'),
    result.Expected(metric, best, -3, 5, than='fullsoftmax'),
    result.Expected(metric, 'centralized', -3, than='fullsoftmax'),
    result.Expected(metric, best, 5, than='fedaws_posonly'),
  )


SMALL1 = _small(
  *(fedss_numbers.TABLE1, 'landmarks-user-160k', 400, _METHODS),
  _expected('top1', 5, 80, 10, 20),
)
SMALL2 = _small(
  *(fedss_numbers.TABLE2, 'sop', 600, _METHODS),
  _expected('map@10', 5, 80, 1, 3),
  retrieval_classes=300,
)
SMALL4 = _small(
  *(fedss_numbers.TABLE4, 'sop', 600),
  {'fedss': (80,), 'fullsoftmax': (), 'centralized': ()},
  (
    result.Expected('train_top1', 'fullsoftmax', -3, than='fedss'),
    result.Expected('map@10', 'fedss', -2, 4, than='fullsoftmax'),
  ),
  retrieval_classes=300,
)
SMALL3 = _small(
  *(fedss_numbers.TABLE3, 'imagenet21k', 2_000),
  {**_METHODS, 'fedss': (50, 800), 'negonly': (50, 800)},
  (
    result.Expected('top1', 'fedss negatives=800', 3, than='posonly'),
    result.Expected('top1', 'fedss negatives=800', -3, 3, than='fullsoftmax'),
    result.Expected(
      'top1', 'fedss negatives=50', -2, than='negonly negatives=50'
    ),
    result.Expected('top1', 'centralized', -2, than='fullsoftmax'),
  ),
  note='',
  num_clients=150,
  classes_per_client=20,
)
SMALL_M = _small(
  *(fedss_numbers.TABLE1, 'landmarks-user-160k', 400),
  {**_ALL_M, 'negonly': (5, 80)},
  (
    result.Expected('top1', 'fedss negatives=5', 20, than='posonly'),
    result.Expected('top1', 'fedss negatives=20', 0, than='fedss negatives=5'),
    result.Expected('top1', 'fedss negatives=80', 0, than='fedss negatives=20'),
    result.Expected('top1', 'fedss negatives=80', -3, 5, than='fullsoftmax'),
  ),
)
SMALL6 = _small(
  *(fedss_numbers.FIGURE6, 'sop', 600, {'fedss': (5, 40), 'negonly': (5, 40)}),
  tuple(
    result.Expected(
      *('map@10', f'fedss negatives={m}', 0),
      than=f'negonly negatives={m}',
    )
    for m in (5, 40)
  ),
  retrieval_classes=300,
)
