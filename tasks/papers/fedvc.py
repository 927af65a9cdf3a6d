"""FedVC and FedIR: Hsu, Qi, Brown: "Federated Visual Classification with Real-World
Data Distribution", ECCV 2020, arXiv:2003.08082.

Tables 2 to 4 have the accuracy after 1,000, 2,500 and 5,000 rounds. The accuracy after 5,000
rounds comes first in a row, because listings show the first number. Table 2 also has the accuracy
after 10,000, 25,000 and 50,000 local batches of the slowest client. Table 5 counts the rounds
until a fraction of the centralized accuracy. The runs of Table 5 evaluate after every round.
50,000 batches are 12,500 rounds of virtual clients, which take 4 batches per round. Without
virtual clients, the slowest of ten clients of User-120k takes at least 4 batches per round. Rows
on Landmarks set the network, the head and the crops of this paper, because the task's defaults
are those of FedSS.
"""

from tasks.papers import data, table

_PAPER = {'paper': 'FedVC', 'source': 'arXiv:2003.08082'}
_PRETRAINED = 'The published numbers are for pretrained networks (--encoder_weights=imagenet). '
_START = {'start_from': 'handwriting'}  # A name in `encoders.ENCODERS`.
_STARTED = 'Training starts from an encoder that we trained on other classes'
_COMMON = {
  'split': 'dirichlet',
  'clients_per_round': 10,
  # The paper's server optimizer.
  'server_optimizer': 'sgd',
  'server_learning_rate': 1.0,
  'batch_size': 32,
  'rounds': 40,
}
# Client sizes are very unequal: the largest of ten clients has four times the mean size. Sizes are
# independent of the clients' class distributions. Virtual clients have four batches, as in the
# paper. A virtual client has twice the images of an average client. In User-120k, it has many times
# as many. 40 rounds correspond to the paper's 5,000, and 400 batches to 50,000. We leave out the
# paper's columns after 1,000 and 2,500 rounds. We fixed these settings after a pilot with different
# data and seeds (100), before the measured runs.
_UNEQUAL = {
  **_COMMON,
  **_START,
  'num_classes': 60,
  'num_clients': 200,
  'examples_per_client': 60,
  'concentration': 1.0,
  'size_deviation': 1.2,
  'client_learning_rate': 0.03,
  'steps_per_round': 10 * 60 // 32,
  'eval_every': 1,
}
# Clients have as many images as in iNaturalist-User-120k. The learning rate is small, so that
# scores still rise after half of the rounds. We fixed these settings after a pilot with different
# data and seeds (100), before the measured runs.
_FEW_IMAGES = {
  **_UNEQUAL,
  'num_classes': 200,
  'num_clients': 1_000,
  'examples_per_client': 13,
  'client_learning_rate': 0.01,
  'virtual_client_size': 128,
  'steps_per_round': 10 * 128 // 32,
  'rounds': 200,
  'eval_every': 5,
}
# Clients have equal sizes, as with the Dirichlet split of CIFAR-10. With alpha = 0, two clients
# share each class.
_EQUAL = {
  **_COMMON,
  'num_classes': 50,
  'num_clients': 100,
  'examples_per_client': 60,
  'steps_per_round': 10 * 60 // 32,
  'eval_every': 10,
}
# Clients train five local epochs, and there are no virtual clients. The standard deviation of
# client sizes is 1.1 times the mean, as in `glyphs-landmarks`. A log-normal distribution with a
# deviation of 0.9 gives this ratio. After 24 rounds, scores and FedIR's gain still rise. We fixed
# these settings after a pilot with different data and seeds (100), before the measured runs.
_LANDMARKS = {
  **_UNEQUAL,
  'size_deviation': 0.9,
  'local_epochs': 5,
  'steps_per_round': 10 * 60 * 5 // 32,
  'rounds': 24,
}
_OF_LANDMARKS = (
  'Procedural handwriting with 60 classes, 200 clients with 60 images on average, 10 and 25'
  ' clients per round, five local epochs, 24 rounds. Client sizes are as unequal as in'
  " glyphs-landmarks (size_deviation 0.9) and independent of the clients' classes (alpha 1)."
  f' {_STARTED}{table.REDESIGNED}'
)
_OF_TABLE_4 = {'what': _OF_LANDMARKS, 'shared': _LANDMARKS}
_OF_CLIENTS = (
  'Procedural handwriting with {} classes, {} clients with {} images on average, 10 clients per'
  ' round. Client sizes (size_deviation 1.2) and class distributions (alpha 1) are unequal and'
  ' independent of each other. Virtual clients have 128 images. '
  f'{_STARTED}{table.REDESIGNED}'
)
_OF_UNEQUAL = _OF_CLIENTS.format(60, 200, 60)
_OF_FEW_IMAGES = _OF_CLIENTS.format(200, '1,000', 13)
_AFTER_40 = '. Scores are taken after 40 rounds'
_OF_EQUAL = (
  'Procedural handwriting with 50 classes, 100 clients with 60 images each, alpha of 1,000, 1 and'
  ' 0, 10 clients per round, 40 rounds, learning rates of 0.01 and 0.1'
  f'{table.REDESIGNED}'
)


def _table(
  number,
  caption,
  notes='',
  start=_PRETRAINED,
  what=_OF_UNEQUAL + _AFTER_40,
  shared=_UNEQUAL,
  **more,
):
  return table.of_csv(
    **_PAPER,
    number=number,
    caption=caption,
    notes=f'{start}{notes}'.strip(),
    what=what,
    shared=shared,
    **more,
  )


def _curves(number, of, caption, **more):
  """Returns a figure with the learning curves of a table's runs."""
  caption = f"Learning curves, {caption}: Table {of}'s runs"
  words = {'of': f'table{of}', 'curves': ('top1',), **more}
  return _table(f'Fig. {number}', caption, **words)


# The EMD by alpha of 100 clients with 500 images each. We derived these means over five seeds.
EMD = {
  'CIFAR-10': {
    100.0: 0.28,
    10.0: 0.73,
    1.0: 1.45,
    0.5: 1.60,
    0.2: 1.70,
    0.1: 1.74,
    0.05: 1.76,
    0.0: 1.80,
  },
  'CIFAR-100': {
    1000.0: 0.46,
    100.0: 0.85,
    10.0: 1.57,
    5.0: 1.72,
    2.0: 1.85,
    1.0: 1.90,
    0.5: 1.93,
    0.0: 1.98,
  },
}
_WITHIN = 0.05
_FIGURES = (
  'We could not verify that figure 2 shows iNaturalist and that figure 3 shows Landmarks. We could'
  ' not verify the EMDs, either.'
)


def at(data: str, alpha: float) -> str:
  """Names a value's place in figure 10: 'alpha = 1', or 'alpha = 1 of CIFAR-100'."""
  return f'alpha = {alpha:g}{"" if data == "CIFAR-10" else f" of {data}"}'


RESULTS = (
  _table(
    'Table 1',
    'Centralized training',
    'We do not know how long the paper trained.',
    'The numbers on photographs are for pretrained networks (--encoder_weights). ',
    what='',
  ),
  _table(
    'Table 2',
    'FedVC on iNaturalist: 5,000 rounds of 10 clients',
    'Virtual clients take 4 batches per round, so 50,000 batches are 12,500 rounds. All federated'
    ' rows of User-120k train for 12,500 rounds. The centralized accuracy is from the end of'
    ' training.',
  ),
  _table(
    'Table 3',
    'FedIR with FedVC on iNaturalist-User-120k: 5,000 rounds of 10 and 100 clients',
    what=_OF_FEW_IMAGES,
    shared=_FEW_IMAGES,
  ),
  _table(
    'Table 4',
    'FedIR on Landmarks-User-160k: 5,000 rounds; two layers (--trainable=bottleneck) or all',
    "We do not know the paper's target distribution of FedIR and number of local epochs. We chose"
    ' the distribution of the training images and 5 epochs.',
    **_OF_TABLE_4,
  ),
  _table(
    'Table 5',
    'Rounds on iNaturalist-Geo-3k to 10, 50 and 90 % of centralized accuracy',
    'We infer that these runs use FedVC, because without FedVC, no accuracy in Table 2 reaches 90 %'
    ' of the centralized 57.90 %. From scratch (no --encoder_weights), runs have 50,000 rounds with'
    ' 10 clients and 20,000 with 100, as in the paper. We do not know the centralized accuracy from'
    ' scratch. Each round ends with an evaluation. --eval_every=10 saves most of the running time.',
    '',
    f'{_OF_FEW_IMAGES}. Rows with an empty start_from train from scratch instead',
    _FEW_IMAGES,
  ),
  table.Diagram(
    **_PAPER,
    number='Fig. 1',
    caption='Maps of where the images of iNaturalist clients were taken',
    notes='`launch.make_splits inaturalist-geo-*` draws such a map as map.png.',
  ),
  data.study(
    **_PAPER,
    number='Fig. 2',
    caption='Examples and classes of iNaturalist clients, by rank',
    notes='We could not verify that a Geo cell has at least 0.01 of the maximum number of images. '
    + _FIGURES,
  ),
  data.study(
    **_PAPER,
    number='Fig. 3',
    caption='Examples and classes of Landmarks clients, by rank; and examples of the classes for'
    ' training and test',
    notes=_FIGURES,
  ),
  _table(
    'Fig. 4',
    'Accuracy relative to centralized training, by skew of the clients (EMD)',
    'These are the curves with ten clients per round and one local epoch. The paper also varies'
    ' epochs and clients. Every point is the best score of a grid of learning rates and momenta,'
    " with FedAvg as momentum 0. We do not know the paper's grid, so we chose one. Section 6.1 says"
    ' that momentum scores higher if clients are heterogeneous. It says nothing about other'
    ' clients. The centralized accuracy is in Table 1.',
    '',
    _OF_EQUAL,
    _EQUAL,
    real='CIFAR-10, alpha of 100, 1 and 0.1, 100 rounds, learning rates from 0.003 to 0.1',
    is_relative=True,
    best_over=table.EFFECTIVE,
  ),
  _curves(5, 4, 'FedIR on Landmarks', **_OF_TABLE_4),
  _curves(6, 2, 'FedVC on iNaturalist'),
  _curves(
    7,
    4,
    'Landmarks by clients per round',
    notes='Section 6.2 says that FedIR helps most if few clients participate. In Table 4 its'
    ' gains after 5,000 rounds with 10, 50 and 100 clients are 2.0, 1.7 and 1.8 points'
    ' with all layers, and 2.0, 2.8 and 2.7 with two. We therefore test that FedIR helps at'
    ' least as much with few clients.',
    **_OF_TABLE_4,
  ),
  _table(
    'Fig. 8',
    'Accuracy by effective learning rate: learning rate / (1 - momentum), for each alpha',
    'The paper shows the best score at each effective learning rate, without numbers. We do not'
    ' know its grids, so we chose our own, with FedAvg as momentum 0, 50 clients per round and 5'
    ' local epochs. The paper ran 10,000 rounds on CIFAR-10 and 20,000 on CIFAR-100. The region of'
    " good rates is the share of a grid's settings that reach nine tenths of its best score.",
    what=_OF_EQUAL,
    small={'fig4': _EQUAL},
    curves=('top1',),
    over=table.EFFECTIVE_RATE,
  ),
  _curves(
    9,
    5,
    'pretrained and from scratch',
    start='',
    what=f'{_OF_FEW_IMAGES}. Rows with an empty start_from train from scratch instead',
    shared=_FEW_IMAGES,
  ),
  table.Study(
    **_PAPER,
    number='Fig. 10',
    caption='Classes of the clients of CIFAR-10 and CIFAR-100 by alpha: 100 clients of 500 images',
    notes='The paper shows the counts without numbers. We derived the EMDs with alpha as the total'
    ' concentration. The EMDs of figure 4 in the paper appear at these values of alpha.',
    measure='class_counts',
    forms={'small': table.Form("CIFAR's numbers of labels, five seeds, the same at all scales")},
    expected={
      f'EMD at {at(data, alpha)}': (value - _WITHIN, value + _WITHIN)
      for data, by_alpha in EMD.items()
      for alpha, value in by_alpha.items()
    },
  ),
)
