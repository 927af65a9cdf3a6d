"""TurboSVM-FL: Wang, Bodonhelyi, Bozkir, Kasneci, "TurboSVM-FL: Boosting Federated
Learning through SVM Aggregation for Lazy Clients", AAAI 2024, arXiv:2401.12012.

The tasks have the paper's models and learning rates (its Tables 5 to 8). All numbers are
means over five seeds, measured on the pooled examples of the test users.
"""

from tasks.papers import data, table

_PAPER = {'paper': 'TurboSVM-FL', 'source': 'arXiv:2401.12012'}
_SEEDS = (0, 1, 2, 3, 4)
_AS_PUBLISHED = (
  'As in the published code, FedAdam and FedAMS on CelebA keep the initial BatchNorm statistics,'
  ' and MOON with one local epoch has no contrastive term.'
)
_AFTER_100 = f'Scores after 100 of 201 rounds. {_AS_PUBLISHED}'
_DEVIATIONS = 'The paper says that its deviations are below 13.0 and mostly below 3.0.'
_FIRST_ROUND = (
  'The first round with a test accuracy of 70 % (FEMNIST and CelebA) or 50 % (Shakespeare). >200'
  f' means that no round of 201 reaches this accuracy. {_AS_PUBLISHED}'
)
_SETS = {'femnist': 'FEMNIST', 'celeba': 'CelebA', 'shakespeare': 'Shakespeare'}


# At the small scale, results that the paper has only on CelebA use procedural faces. All other
# results use handwriting with the sizes of FEMNIST, so that tables share runs. Class rows have the
# paper's length of 2,048, for which its learning rates were chosen. The SVMs' C has the paper's
# schedule of 201 rounds, except in Table 4. Table 4 counts support vectors at the end of the
# schedule, so C falls to the paper's 1 / 201 in fewer rounds.
_EVALUATED = {'eval_every': 4, 'checkpoint_every': 20}
_SMALL = {'rounds': 48, **_EVALUATED}
_WHAT = 'Procedural handwriting with the sizes of FEMNIST, 48 of 201 rounds' + table.REDESIGNED
_OF_FACES = {'rounds': 100, 'eval_every': 10, 'checkpoint_every': 20}
_SHAKESPEARE = (
  'Shakespeare, 60 rounds of FedAvg and TurboSVM-FL. Each round is scored on 20,000 test examples'
)
_FACES = 'Procedural faces with the sizes of CelebA, 100 of 201 rounds'


def _table(number, caption, notes='', **more):
  words = {'number': number, 'caption': caption, 'notes': notes}
  words |= {'what': _WHAT, 'shared': _SMALL, 'seeds': _SEEDS, **more}
  return table.of_csv(**_PAPER, **words)


def _curves(number, task):
  """Returns the learning curves of Table 3's runs on one task."""
  small = {
    'femnist': {},
    'celeba': {'what': _FACES, 'small': {f'fig{number}': _OF_FACES}},
    'shakespeare': {'what': '', 'real': _SHAKESPEARE},
  }
  none = 'There is no small version, because there are no procedural data like Shakespeare.'
  return _table(
    f'Fig. {number}',
    f"Learning curves on {_SETS[task]}: Table 3's runs",
    none if task == 'shakespeare' else '',
    of='table3',
    task=task,
    curves=('macro_f1', 'top1', 'mcc'),
    **small[task],
  )


def _architecture(number):
  return table.Formula(
    **_PAPER,
    number=f'Table {number}',
    caption='Trainable parameters: computed from the layers of the network',
    notes="The published code's network has this number of parameters. Tests check that our encoder"
    ' has the same number.',
  )


_STATISTICS_NOTES = (
  'The paper counts all users: 3,550, 9,343 and 1,129. Our clients are the training users, nine'
  ' tenths of all users, including users with few examples (--min_examples=1). The number of'
  " training users follows from LEAF's split."
)


RESULTS = (
  _table(
    'Fig. 1',
    'Curves on FEMNIST at a suboptimal learning rate; for 1, 2 and 4 local epochs',
    'We reproduce the right part of the figure. The left part is a diagram of a round. The caption'
    " does not state the learning rate and the epochs. We chose 0.03, a third of Table 8's rate,"
    ' and the epochs of Table 11. The small version has one epoch.',
    curves=('top1',),
  ),
  data.study(
    **_PAPER, number='Table 1', caption="Statistics of LEAF's sets", notes=_STATISTICS_NOTES
  ),
  _table(
    'Table 2',
    'Rounds to an accuracy; 8 clients, one local epoch',
    _FIRST_ROUND,
    # Table 2 counts the rounds until this target.
    shared={**_SMALL, 'target': 'top1:0.7'},
    real=_SHAKESPEARE,
  ),
  _table(
    'Table 3',
    'Scores after 100 rounds; 8 clients, one local epoch',
    _AFTER_100,
    at_rounds=100,
    real=_SHAKESPEARE,
  ),
  _table(
    'Table 4',
    'Macro F1 by the length of class rows; 8, 64 and 512 clients',
    'Scores after 200 of 201 rounds. No other method has support vectors. With 8 clients all'
    ' rows are support vectors, whatever their length. Only 64 and 512 clients can show that longer'
    ' rows have fewer support vectors.',
    at_rounds=200,
    what='Procedural handwriting in the shape of FEMNIST, 8 and 64 clients, 40 rounds in which'
    ' C falls from 40 / 201 to 1 / 201' + table.REDESIGNED,
    shared=_EVALUATED,
  ),
  *map(_architecture, (5, 6, 7)),
  table.Formula(
    **_PAPER,
    number='Table 8',
    caption="Learning rates: with the tasks' defaults",
    notes="On Shakespeare the published code used 0.1 for TurboSVM-FL's rows;"
    ' --logits_learning_rate=1 is the value of the table.',
  ),
  _table('Table 9', 'Rounds to an accuracy; 8, 16 and 32 clients', _FIRST_ROUND),
  _table(
    'Table 10',
    'Scores after 100 rounds; 8, 16 and 32 clients',
    f'{_AFTER_100} {_DEVIATIONS}',
    at_rounds=100,
    is_unsure=True,
  ),
  _table(
    'Table 11',
    'Scores after 100 rounds; 1, 2 and 4 local epochs',
    f'{_AFTER_100} {_DEVIATIONS} The paper titles 4 epochs "before overfitting and model crash".',
    at_rounds=100,
    is_unsure=True,
  ),
  _table(
    'Table 12',
    'Macro F1 and test loss by the kernel of the SVMs; 8 clients, one local epoch',
    'Scores after 200 rounds with one seed. The test loss is the binary cross-entropy; lower is'
    ' better. We are not certain which number belongs to which kernel. We are not certain about the'
    ' learning rates of rbf and sigmoid, either.',
    seeds=(0,),
    is_unsure=True,
    at_rounds=200,
    what=_FACES + table.REDESIGNED,
    shared=_OF_FACES,
  ),
  *map(_curves, (2, 4, 5), _SETS),
  data.study(
    **_PAPER, number='Fig. 3', caption='Histograms of the sizes of clients', notes=_STATISTICS_NOTES
  ),
)
