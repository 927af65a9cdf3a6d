"""FedSS's figure 8: the share of the model that is its class table."""

from tasks.papers import result

# Derived: the paper does not print it. With it all five printed numbers follow; it is
# the encoder of which 129,792 class weights (2,028 by 64) are 3.38 % of the model.
ENCODER = 3_710_000
# MobileNetV3-Large of this package with its linear layer from 960 to d.
_FEATURES, _WITHOUT_LAST = 960, 2_971_952
_LANDMARKS, _SOP = ('Landmarks', 2_028), ('SOP', 11_318)
_NONE = result.NONE


def encoder_here(dim: int) -> int:
  """Returns the parameters of this package's encoder with embeddings of `dim`."""
  return _WITHOUT_LAST + (_FEATURES + 1) * dim


def share(encoder: int, classes: int, dim: int, sent: int = 0) -> float:
  """Returns which part of the model's parameters are rows that a client is not sent.

  Args:
    encoder: parameters.
    classes: n.
    dim: d, the length of a row.
    sent: |S|, the rows that a client is sent; 0: the share of the whole table.
  """
  rows = classes * dim
  return rows / (encoder + rows) * (1 - sent / classes)


def _row(name, classes, dim, sent=0, printed=''):
  value = 100 * share(ENCODER, classes, dim, sent)
  decimals = len(printed.partition('.')[2])
  same = 'yes' if f'{value:.{decimals}f}' == printed else 'no'
  return (
    *(name, f'{classes:,}', f'{dim:,}', f'{sent or _NONE}'),
    *(printed or _NONE, f'{value:.2f}', same if printed else _NONE),
    f'{100 * share(encoder_here(dim), classes, dim, sent):.2f}',
  )


FIGURE8 = result.Formula(
  paper='FedSS',
  number='Fig. 8',
  source='arXiv:2203.04888',
  caption='Share of the class table, n d / (encoder + n d), in % of all parameters;'
  ' with |S|, the share that clients are spared, as the text has it',
  notes='The encoder of the paper is not printed: 3,710,000 parameters are derived'
  ' from its 3.38 %, which its text calls a reduction with |S| = 170 and is the'
  " share of the whole table. The last column has this package's MobileNetV3, which"
  ' has 2,971,952 parameters and a linear layer of d outputs.',
  heading=(
    *('classes', 'n', 'd', '|S|', 'published', 'computed', 'equal'),
    'of our MobileNetV3',
  ),
  rows=(
    _row(*_LANDMARKS, 64, printed='3.38'),
    _row(*_SOP, 64, printed='16'),
    _row(*_SOP, 64, 100, '16'),
    _row(*_LANDMARKS, 1_280, 170, '38'),
    _row(*_SOP, 1_280, 100, '79'),
    _row(*_LANDMARKS, 1_280),
    _row(*_SOP, 1_280),
    _row('ImageNet-21k', 21_841, 64),
    _row('ImageNet-21k', 21_841, 1_280),
    *(
      _row('more', classes, dim)
      for classes in (100_000, 1_000_000)
      for dim in (64, 1_280)
    ),
  ),
)
