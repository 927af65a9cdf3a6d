"""FedSS: Waghmare et al., "Efficient Image Representation Learning with Federated
Sampled Softmax", 2022, arXiv:2203.04888.

|S| of the paper is the mean number of rows that a client requests: the mean number
of its classes (90, 20, 20) and m negatives. Its photographs are not public or not
here, so the tasks are procedural data of their shape.
"""

from tasks.papers import table

_PHOTOGRAPHS = (
  'The numbers are of photographs and pretrained networks; the task is procedural'
  ' handwriting of the same shape. '
)
_ASSIGNED = (
  'Which of the two merged numbers is of posonly and which of fedaws_posonly is'
  ' inferred from the order of the rows.'
)
_NOT_KNOWN = ' Rows without a number: it is not known here.'


def _rows(task, metric, sampled, others):
  """Returns a table's rows.

  Args:
    task: the task's name.
    metric: the name of the metric.
    sampled: algorithm -> {m: (mean, std) or None}.
    others: algorithm -> (mean, std) or (mean,), without negatives.
  """
  found = []
  for algorithm, by_negatives in sampled.items():
    for m, value in by_negatives.items():
      published = {metric: table.Published(*value)} if value else {}
      found.append(table.Row(task, algorithm, published, {'negatives': m}))
  for algorithm, value in others.items():
    published = {metric: table.Published(*value)}
    found.append(table.Row(task, algorithm, published))
  return tuple(found)


def _retrieval(algorithm, train_top1, map_at_10, changes):
  published = {
    'map@10': table.Published(*map_at_10),
    'train_top1': table.Published(*train_top1),
  }
  return table.Row('glyphs-sop', algorithm, published, changes)


def _table(number, caption, rows, notes):
  return table.PaperTable(
    paper='FedSS',
    number=f'Table {number}',
    source='arXiv:2203.04888',
    caption=caption,
    rows=rows,
    notes=notes,
  )


TABLES = (
  _table(
    1,
    'Landmarks-User-160k: 5,000 rounds of 64 clients; |S| = 95 to 170',
    _rows(
      'glyphs-landmarks',
      'top1',
      {
        'fedss': {
          5: (51.7, 0.4),
          10: None,
          20: None,
          40: (55.3, 0.6),
          80: (56.0, 0.06),
        },
        'negonly': {
          5: (7.1, 3.7),
          10: None,
          20: None,
          40: (25.0, 0.4),
          80: (26.5, 1.4),
        },
      },
      {
        'posonly': (18.7, 0.4),
        'fedaws_posonly': (43.1,),
        'fullsoftmax': (56.8,),
        'centralized': (59.5,),
      },
    ),
    _PHOTOGRAPHS + _ASSIGNED + _NOT_KNOWN,
  ),
  _table(
    2,
    'SOP: 2,000 rounds of 32 clients; |S| = 25 to 100',
    _rows(
      'glyphs-sop',
      'map@10',
      {
        'fedss': {
          5: None,
          10: None,
          20: None,
          40: (26.4, 0.12),
          80: (26.5, 0.03),
        },
        'negonly': {
          5: None,
          10: None,
          20: None,
          40: (16.5, 0.04),
          80: None,
        },
      },
      {
        'posonly': (16.2, 0.1),
        'fedaws_posonly': (19.7,),
        'fullsoftmax': (25.7,),
        'centralized': (25.4,),
      },
    ),
    _PHOTOGRAPHS
    + _ASSIGNED
    + ' The number of fedss with 80 negatives is from Table 4.'
    + _NOT_KNOWN,
  ),
  _table(
    3,
    'ImageNet-21k: 25,000 rounds; |S| = 70 to 820',
    _rows(
      'glyphs-imagenet21k',
      'top1',
      {
        'fedss': {
          50: (9.1, 0.4),
          100: None,
          200: None,
          400: (10.0, 0.5),
          800: (9.8, 0.5),
        },
        'negonly': {
          50: (3.9, 0.1),
          100: None,
          200: None,
          400: (4.4, 0.1),
          800: (4.7, 0.2),
        },
      },
      {
        'posonly': (4.2, 0.1),
        'fedaws_posonly': (5.1,),
        'fullsoftmax': (11.3,),
        'centralized': (15.4,),
      },
    ),
    _PHOTOGRAPHS
    + 'The paper does not state the clients of a round. '
    + _ASSIGNED
    + _NOT_KNOWN,
  ),
  _table(
    4,
    'SOP: training and retrieval, |S| = 100',
    (
      _retrieval('fedss', (97.6, 0.2), (26.5, 0.03), {'negatives': 80}),
      _retrieval('fullsoftmax', (99.9,), (25.7,), {}),
      _retrieval('centralized', (99.9,), (25.4,), {}),
    ),
    _PHOTOGRAPHS.strip(),
  ),
)
