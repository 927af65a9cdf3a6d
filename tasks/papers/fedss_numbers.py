"""The experiments of FedSS's tables and figures, and the printed numbers."""

import itertools

from tasks.papers import table

_SOP = 'glyphs-sop', 'sop'


def _rows(tasks, metric, negatives, printed):
  """Returns a table's rows.

  Args:
    tasks: the tasks' names.
    metric: the name of the metric.
    negatives: the table's m.
    printed: algorithm -> its values; one for each m if it takes negatives.
  """
  found = []
  for task, (algorithm, text) in itertools.product(tasks, printed.items()):
    values = table.read(text)
    changes = [{'negatives': m} for m in negatives] if len(values) > 1 else [{}]
    for value, each in zip(values, changes, strict=True):
      found.append(table.Row(task, algorithm, {metric: value}, each))
  return tuple(found)


def _retrieval(task, algorithm, printed, **changes):
  published = dict(
    zip(('train_top1', 'map@10'), table.read(printed), strict=True)
  )
  return table.Row(task, algorithm, published, changes)


TABLE1 = _rows(
  ('glyphs-landmarks', 'landmarks-user-160k'),
  'top1',
  (5, 10, 20, 40, 80),
  {
    'fedss': '51.7±0.4 – – 55.3±0.6 56.0±0.06',
    'negonly': '7.1±3.7 – – 25.0±0.4 26.5±1.4',
    'posonly': '18.7±0.4',
    'fedaws_posonly': '43.1',
    'fullsoftmax': '56.8',
    'centralized': '59.5',
  },
)
TABLE2 = _rows(
  _SOP,
  'map@10',
  (5, 10, 20, 40, 80),
  {
    'fedss': '– – – 26.4±0.12 26.5±0.03',
    'negonly': '– – – 16.5±0.04 –',
    'posonly': '16.2±0.1',
    'fedaws_posonly': '19.7',
    'fullsoftmax': '25.7',
    'centralized': '25.4',
  },
)
TABLE3 = _rows(
  ('glyphs-imagenet21k', 'imagenet21k'),
  'top1',
  (50, 100, 200, 400, 800),
  {
    'fedss': '9.1±0.4 – – 10.0±0.5 9.8±0.5',
    'negonly': '3.9±0.1 – – 4.4±0.1 4.7±0.2',
    'posonly': '4.2±0.1',
    'fedaws_posonly': '5.1',
    'fullsoftmax': '11.3',
    'centralized': '15.4',
  },
)
TABLE4 = tuple(
  row
  for task in _SOP
  for row in (
    _retrieval(task, 'fedss', '97.6±0.2 26.5±0.03', negatives=80),
    _retrieval(task, 'fullsoftmax', '99.9 25.7'),
    _retrieval(task, 'centralized', '99.9 25.4'),
  )
)

# NegOnly has |P_k| - 1 negatives more (`--equal_negatives`).
FIGURE6 = tuple(
  table.Row('sop', algorithm, {'map@10': None}, {'negatives': m, **more})
  for algorithm, more in (('fedss', {}), ('negonly', {'equal_negatives': True}))
  for m in (5, 40)
)
