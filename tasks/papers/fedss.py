"""FedSS: Waghmare et al., "Efficient Image Representation Learning with Federated
Sampled Softmax", 2022, arXiv:2203.04888.

|S| of the paper is the mean number of rows that a client requests: the mean number
of its classes (90, 20, 20) and m negatives. Each row is there twice: on the paper's
photographs, and on procedural data of their shape, which anyone has.
"""

from tasks.papers import fedss_numbers
from tasks.papers import fedss_sizes
from tasks.papers import fedss_small
from tasks.papers import result
from tasks.papers import table

_PHOTOGRAPHS = (
  'The numbers are of photographs and pretrained networks. Tasks named glyphs- are'
  ' procedural handwriting of the same shape. '
)
_ASSIGNED = (
  'Which of the two merged numbers is of posonly and which of fedaws_posonly is'
  ' inferred from the order of the rows.'
)
_PANEL_A = (
  "Its panel a. Panel b, the same of Table 2's runs, is not drawn here."
)
_NOT_KNOWN = ' Rows without a number: it is not known here.'


def _result(number, caption, rows, notes='', **more):
  return table.PaperTable(
    paper='FedSS',
    number=number,
    source='arXiv:2203.04888',
    caption=caption,
    rows=rows,
    notes=(_PHOTOGRAPHS + notes).strip(),
    **more,
  )


RESULTS = (
  result.Diagram(
    paper='FedSS',
    number='Fig. 1',
    source='arXiv:2203.04888',
    caption='What a client receives, trains and returns',
  ),
  result.Diagram(
    paper='FedSS',
    number='Fig. 2',
    source='arXiv:2203.04888',
    caption='The columns of the class table that a client requests',
  ),
  _result(
    'Table 1',
    'Landmarks-User-160k: 5,000 rounds of 64 clients; |S| = 95 to 170',
    fedss_numbers.TABLE1,
    _ASSIGNED + _NOT_KNOWN,
    small=fedss_small.SMALL1,
  ),
  _result(
    'Table 2',
    'SOP: 2,000 rounds of 32 clients; |S| = 25 to 100',
    fedss_numbers.TABLE2,
    _ASSIGNED
    + ' The number of fedss with 80 negatives is from Table 4.'
    + _NOT_KNOWN,
    small=fedss_small.SMALL2,
  ),
  _result(
    'Table 3',
    'ImageNet-21k: 25,000 rounds; |S| = 70 to 820',
    fedss_numbers.TABLE3,
    'The paper does not state the clients of a round. '
    + _ASSIGNED
    + _NOT_KNOWN,
    small=fedss_small.SMALL3,
  ),
  _result(
    'Table 4',
    'SOP: training and retrieval, |S| = 100',
    fedss_numbers.TABLE4,
    small=fedss_small.SMALL4,
  ),
  _result(
    'Fig. 3',
    "Learning curves of the methods: Table 1's runs",
    fedss_numbers.TABLE1,
    _PANEL_A,
    small=fedss_small.SMALL1,
    curves=('top1',),
  ),
  _result(
    'Fig. 4',
    "Learning curves of FedSS by |S|: Table 1's runs",
    fedss_numbers.TABLE1,
    _PANEL_A,
    small=fedss_small.SMALL_M,
    curves=('top1',),
  ),
  _result(
    'Fig. 5',
    "Accuracy for the class parameters that a client is sent: Table 1's runs",
    fedss_numbers.TABLE1,
    _PANEL_A,
    small=fedss_small.SMALL_M,
  ),
  _result(
    'Fig. 6',
    'FedSS and NegOnly with equally many pushing classes',
    fedss_numbers.FIGURE6,
    'The paper shows curves without numbers, with FedSS above.',
    small=fedss_small.SMALL6,
    shape=fedss_small.SMALL6.expected,
  ),
  result.Study(
    paper='FedSS',
    number='Fig. 7',
    source='arXiv:2203.04888',
    caption="Confusion matrices of one client's training examples: FedSS and"
    " NegOnly of Table 1's runs, m = 5",
    notes='The paper draws them without numbers.',
    module='confusion',
    small=fedss_small.SMALL1.what,
    needs='the runs of fedss/table1 with m = 5: the data of landmarks-user-160k',
    expected=(
      result.Expected('', 'fedss less negonly, points of the diagonal', 20),
    ),
  ),
  fedss_sizes.FIGURE8,
  result.Study(
    paper='FedSS',
    number='Fig. 9',
    source='arXiv:2203.04888',
    caption="Gradient noise: mean absolute difference of FedSS's aggregated delta"
    " from FullSoftmax's, over m",
    notes='Clients of a round hold one batch of 32 images and differ in their'
    ' negatives. Deltas are of one local pass from the initial weights; how long the'
    " paper's network had been trained is not known here.",
    module='gradient_noise',
    small='Procedural handwriting of 160 classes, 8 clients, 4 batches of about 16'
    ' classes',
    needs='sop (or any task with one label an example: --task)',
    expected=(
      result.Expected(
        '', 'noise over that with the next fewer negatives, the largest', most=1
      ),
      result.Expected('', 'noise with m = 80 over that with m = 5', most=0.5),
      result.Expected(
        '', 'noise with all other classes, m = n - |P|', most=1e-6
      ),
    ),
  ),
  _result(
    'Fig. 10',
    "Accuracy for the class parameters that a client is sent: Table 3's runs",
    fedss_numbers.TABLE3,
    small=fedss_small.SMALL3,
  ),
)
