"""FedSS: Waghmare et al., "Efficient Image Representation Learning with Federated
Sampled Softmax", 2022, arXiv:2203.04888.

|S| of the paper is the mean number of rows that a client requests: the mean number
of its classes (90, 20, 20) and m negatives. Each row is there twice: on the paper's
photographs, and on procedural data of their shape, which anyone has.
"""

import itertools

from tasks.papers import table

_SOP = 'glyphs-sop', 'sop'
_PHOTOGRAPHS = (
  'The numbers are of photographs and pretrained networks. Tasks named glyphs- are'
  ' procedural handwriting of the same shape. '
)
_ASSIGNED = (
  'Which of the two merged numbers is of posonly and which of fedaws_posonly is'
  ' inferred from the order of the rows.'
)
_NOT_KNOWN = ' Rows without a number: it is not known here.'


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
      published = {metric: value} if value else {}
      found.append(table.Row(task, algorithm, published, each))
  return tuple(found)


def _retrieval(task, algorithm, printed, **changes):
  published = dict(
    zip(('train_top1', 'map@10'), table.read(printed), strict=True)
  )
  return table.Row(task, algorithm, published, changes)


def _table(number, caption, rows, notes):
  return table.PaperTable(
    paper='FedSS',
    number=f'Table {number}',
    source='arXiv:2203.04888',
    caption=caption,
    rows=rows,
    notes=(_PHOTOGRAPHS + notes).strip(),
  )


RESULTS = (
  _table(
    1,
    'Landmarks-User-160k: 5,000 rounds of 64 clients; |S| = 95 to 170',
    _rows(
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
    ),
    _ASSIGNED + _NOT_KNOWN,
  ),
  _table(
    2,
    'SOP: 2,000 rounds of 32 clients; |S| = 25 to 100',
    _rows(
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
    ),
    _ASSIGNED
    + ' The number of fedss with 80 negatives is from Table 4.'
    + _NOT_KNOWN,
  ),
  _table(
    3,
    'ImageNet-21k: 25,000 rounds; |S| = 70 to 820',
    _rows(
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
    ),
    'The paper does not state the clients of a round. '
    + _ASSIGNED
    + _NOT_KNOWN,
  ),
  _table(
    4,
    'SOP: training and retrieval, |S| = 100',
    tuple(
      row
      for task in _SOP
      for row in (
        _retrieval(task, 'fedss', '97.6±0.2 26.5±0.03', negatives=80),
        _retrieval(task, 'fullsoftmax', '99.9 25.7'),
        _retrieval(task, 'centralized', '99.9 25.4'),
      )
    ),
    '',
  ),
)
