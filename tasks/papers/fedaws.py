"""FedAwS: Yu et al., "Federated Learning with Only Positive Labels", ICML 2020,
arXiv:2004.10342.

The paper gives neither learning rates nor numbers of rounds; a task's are ours.
"""

from tasks.papers import data_numbers
from tasks.papers import fedaws_small
from tasks.papers import table

_PRECISION = ('p@1', 'p@3', 'p@5')
_ALGORITHMS = ('fedaws_baseline1', 'fedaws_baseline2', 'fedaws', 'centralized')
# Table 4's sweep of lambda has this k.
_K_OF_AMAZONCAT = 100


def _images(task, depth, printed):
  """Returns Table 1's rows of one network, top-1 by `_ALGORITHMS`."""
  return tuple(
    table.Row(task, algorithm, {'top1': value}, {'depth': depth})
    for algorithm, value in zip(_ALGORITHMS, table.read(printed), strict=True)
  )


def _labels(task, algorithm, printed, **changes):
  """Returns a row of P@1, P@3 and P@5."""
  published = dict(zip(_PRECISION, table.read(printed), strict=True))
  return table.Row(task, algorithm, published, changes)


def _table3(task, *printed, **changes):
  """Returns the rows of a data set; `changes` are of its FedAwS."""
  return tuple(
    _labels(task, algorithm, each, **(changes if algorithm == 'fedaws' else {}))
    for algorithm, each in zip(_ALGORITHMS, printed, strict=True)
  )


def _table4(printed, k=_K_OF_AMAZONCAT, weight=10.0):
  return _labels(
    'amazoncat-13k',
    'fedaws',
    printed,
    spreadout_neighbours=k,
    spreadout_weight=weight,
  )


def _table(number, caption, rows, notes, small):
  return table.PaperTable(
    paper='FedAwS',
    number=f'Table {number}',
    source='arXiv:2004.10342',
    caption=caption,
    rows=rows,
    notes=notes,
    small=small,
  )


_TABLE1 = (
  *_images('cifar10', 8, '10.7 83.3 86.3 88.4'),
  *_images('cifar10', 32, '9.8 92.1 92.4 92.4'),
  *_images('cifar100', 32, '1.0 65.1 67.9 68.0'),
  *_images('cifar100', 56, '1.1 67.5 69.6 70.0'),
)
_TABLE3 = (
  *_table3(
    'amazoncat-13k',
    '3.4 3.2 3.1',
    '64.1 46.8 32.6',
    '92.1 70.8 58.7',
    '92.1 77.9 62.3',
    spreadout_neighbours=_K_OF_AMAZONCAT,
  ),
  *_table3(
    'amazon-670k',
    '0.0 0.0 0.0',
    '4.3 2.8 2.2',
    '33.1 29.6 27.4',
    '35.2 31.6 29.5',
  ),
  *_table3(
    'wikilshtc-325k',
    '7.6 4.5 2.8',
    '7.9 3.4 2.6',
    '37.2 22.6 16.2',
    '54.1 38.8 29.9',
  ),
)
_TABLE4 = (
  _table4('26.3 21.5 18.2', k=10),
  _table4('92.1 70.8 58.7', k=100),
  _table4('86.9 66.1 49.3', k=500),
  _table4('87.7 69.7 52.2', k=0),
  _table4('73.2 50.2 40.4', weight=1.0),
  _table4('92.1 70.8 58.7', weight=10.0),
  _table4('92.2 71.7 57.9', weight=100.0),
)

RESULTS = (
  _table(
    1,
    'CIFAR-10 and CIFAR-100, one class a client; ResNet-8, -32, -56',
    _TABLE1,
    'The paper calls top-1 P@1. Numbers are at convergence.',
    fedaws_small.one_class_a_client(_TABLE1[:4]),
  ),
  data_numbers.study(
    paper='FedAwS',
    number='Table 2',
    source='arXiv:2004.10342',
    caption='Statistics of the multi-label sets',
    notes='Labels are those before one of each training example is kept; a client is a'
    ' class with an example. Test examples are of the distributed files. Bibtex and'
    ' Delicious are not in the paper.',
  ),
  _table(
    3,
    'Multi-label sets, one label a client; 4,096 clients a round',
    _TABLE3,
    'The text says k = 10 for the whole table, but the row of AmazonCat equals'
    ' the column k = 100 of Table 4, so that k is used for it. The paper also has'
    ' SLEEC, which is not implemented here: 90.5 / 76.3 / 61.5, 35.1 / 31.3 /'
    ' 28.6 and 54.8 / 33.4 / 23.9 %.',
    fedaws_small.many_labels(_TABLE3[:4]),
  ),
  _table(
    4,
    'AmazonCat: k with lambda = 10, and lambda with k = 100',
    _TABLE4,
    'k = 0 stands for all others. The sweep of lambda is taken to be with k ='
    ' 100, because its column lambda = 10 equals the column k = 100.',
    fedaws_small.neighbours_and_weights(_TABLE4),
  ),
)
