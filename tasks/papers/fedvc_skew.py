"""FedVC's figures without training: maps, statistics of clients, and classes by alpha."""

from tasks.papers import data_numbers
from tasks.papers import result

PAPER = {'paper': 'FedVC', 'source': 'arXiv:2003.08082'}
# Of 100 clients of 500 images of CIFAR-10: derived, the mean of five seeds.
EMD = {
  100.0: 0.28,
  10.0: 0.73,
  1.0: 1.45,
  0.5: 1.60,
  0.2: 1.70,
  0.1: 1.74,
  0.05: 1.76,
  0.0: 1.80,
}
_WITHIN = 0.05


def name(alpha: float) -> str:
  """Returns the study's name of the distance at an alpha."""
  return f'EMD at alpha = {alpha:g}'


FIGURE1 = result.Diagram(
  **PAPER,
  number='Fig. 1',
  caption='Maps of where the images of iNaturalist clients were taken',
  notes='`launch.make_splits inaturalist-geo-*` draws such a map as map.png.',
)
_FIGURES = (
  ' That figure 2 is of iNaturalist and figure 3 of Landmarks is from memory. EMD'
  ' are as well.'
)
FIGURE2 = data_numbers.study(
  **PAPER,
  number='Fig. 2',
  caption='Examples and classes of the clients of iNaturalist, by rank',
  notes='The least images of a Geo cell, 0.01 of its most, are from memory.'
  + _FIGURES,
)
FIGURE3 = data_numbers.study(
  **PAPER,
  number='Fig. 3',
  caption='Examples and classes of the clients of Landmarks-User-160k, by rank, and'
  ' examples of its classes for training and test',
  notes=_FIGURES.strip(),
)
FIGURE10 = result.Study(
  **PAPER,
  number='Fig. 10',
  caption='Classes of the clients of CIFAR-10 by alpha: 100 clients of 500 images',
  notes='The paper draws the counts without numbers. The distances are derived, with'
  ' alpha as the total concentration: the EMD of its figure 4 appear at these alpha.',
  module='class_counts',
  small="CIFAR-10's numbers of labels, five seeds; it has one size",
  expected=tuple(
    result.Expected('', name(alpha), value - _WITHIN, value + _WITHIN)
    for alpha, value in EMD.items()
  ),
)
