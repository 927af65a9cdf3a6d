"""Tables and figures of the papers' data: published statistics, and small forms.

The published number of a statistic stands beside the band in which ours counts as
the same. Numbers of the whole set of LEAF are compared with ours of the training
users, nine tenths of them, and so within a band.
"""

from collections.abc import Mapping

from tasks.papers import data_set
from tasks.papers import result

_derived = lambda text: data_set.printed(text, origin='derived')


def _repository(
  task, examples, test, features, labels, *more, origin='', **options
):
  """Returns a set of the Extreme Classification Repository; `more` is of labels."""
  numbers = {
    **{
      statistic: data_set.printed(text, origin=origin)
      for statistic, text in (
        (data_set.EXAMPLES, examples),
        *((data_set.FEATURES, features), (data_set.CLASSES, labels)),
      )
    },
    data_set.TEST: data_set.printed(test, origin=origin or 'of the files'),
    **dict(
      zip(
        (data_set.LABELS, data_set.POSITIVES),
        map(data_set.printed, more),
        strict=False,
      )
    ),
  }
  return data_set.Set(task, numbers, options)


# In no paper here, and public.
_MORE = (
  ('bibtex', '4,880', '2,515', '1,836', '159'),
  ('delicious', '12,920', '3,185', '500', '983'),
)
_WHOLE = {'validation': 0.0, 'hashed_features': 0}
_FEDAWS = data_set.Statistics(
  # 10,000 examples of 1 to 5 labels of 1,000, which follow Zipf's law. A client is a
  # class that an example has kept.
  data_set.Set(
    'sparse-words',
    {
      data_set.CLASSES: data_set.exactly(1_000),
      data_set.FEATURES: data_set.exactly(50_000),
      data_set.EXAMPLES: data_set.exactly(10_000),
      data_set.TEST: data_set.exactly(2_000),
      data_set.CLIENTS: data_set.between(800, 1_000),
      data_set.LABELS: data_set.between(2.3, 3.05),
      data_set.POSITIVES: data_set.between(23, 30.5),
      data_set.EMD: data_set.between(1.9, 2),
    },
  ),
  (
    _repository(
      *('amazoncat-13k', '1,186,239', '306,782', '203,882', '13,330'),
      *('5.04', '448.57'),
    ),
    _repository(
      *('wikilshtc-325k', '1,778,351', '587,084', '1,617,899', '325,056'),
      *('3.19', '17.46'),
    ),
    _repository(
      *('amazon-670k', '490,449', '153,025', '135,909', '670,091'),
      *('5.45', '3.99'),
    ),
    *(_repository(*of, origin="the repository's") for of in _MORE),
  ),
)
_FEDMLH = data_set.Statistics(
  # 15,539 examples of 1 to 9 of 3,993 labels; ten clients of a tenth each.
  data_set.Set(
    'sparse-words-eurlex-sets',
    {
      data_set.CLASSES: data_set.exactly(3_993),
      data_set.FEATURES: data_set.exactly(5_000),
      data_set.EXAMPLES: data_set.exactly(15_539),
      data_set.TEST: data_set.exactly(3_809),
      data_set.CLIENTS: data_set.exactly(10),
      data_set.MEAN: data_set.exactly(1_553),
      data_set.STD: data_set.exactly(0),
      data_set.LABELS: data_set.between(4.2, 5.05),
      data_set.POSITIVES: data_set.between(16, 19.7),
    },
    _WHOLE,
  ),
  (
    *(
      _repository(*of, **_WHOLE)
      for of in (
        ('eurlex-4k-sets', '15,539', '3,809', '5,000', '3,993'),
        ('wiki10-31k-sets', '14,146', '6,616', '101,938', '30,938'),
        ('amazontitles-131k-sets', '294,805', '134,835', '40,000', '131,073'),
        (
          *('wikiseealsotitles-320k-sets', '693,082', '177,515', '40,000'),
          '312,330',
        ),
      )
    ),
    *(
      _repository(f'{task}-sets', *of, origin="the repository's", **_WHOLE)
      for task, *of in _MORE
    ),
  ),
)


def _leaf(task, users, total, mean, std, error):
  """Returns a set of LEAF.

  Args:
    task: its name.
    users: the training users, derived from LEAF's split.
    total: examples of all users; '' if it is known only roughly.
    mean: of a user's examples, over all users.
    std: of a user's examples.
    error: three standard errors of the training users' mean, as a part of it.
  """
  numbers = {
    data_set.CLIENTS: _derived(users),
    data_set.MEAN: data_set.printed(mean, within=error),
    data_set.STD: data_set.printed(std, within=max(0.05, 2 * error)),
    **({data_set.ALL: data_set.printed(total)} if total else {}),
  }
  return data_set.Set(task, numbers, {'min_examples': 1})


_TURBOSVM = data_set.Statistics(
  # Sizes are normal and cut at 1; classes are drawn from the shares of NIST's set.
  data_set.Set(
    'glyphs-femnist',
    {
      data_set.CLIENTS: data_set.exactly(3_195),
      data_set.CLASSES: data_set.exactly(62),
      data_set.MEAN: data_set.between(222, 232),
      data_set.STD: data_set.between(84, 93),
      data_set.HELD: data_set.between(50, 60),
      data_set.EMD: data_set.between(0.33, 0.45),
    },
  ),
  (
    _leaf('femnist', '3,195', '805,263', '226.8', '88.9', 0.02),
    _leaf('celeba', '8,408', '200,288', '21.4', '7.6', 0.012),
    _leaf('shakespeare', '1,016', '', '3,743.2', '6,212.3', 0.15),
  ),
)
_USERS = data_set.Statistics(
  # Few clients of many classes, 1.6 examples a class.
  data_set.Set(
    'glyphs',
    {
      data_set.CLIENTS: data_set.exactly(9_275),
      data_set.CLASSES: data_set.exactly(1_203),
      data_set.MEAN: data_set.between(12.3, 13.7),
      data_set.HELD: data_set.between(7.5, 8.5),
      data_set.MOST_HELD: data_set.between(180, 200),
      data_set.EMD: data_set.between(1.6, 1.99),
    },
    {
      'num_clients': 9_275,
      'num_classes': 1_203,
      'classes_per_client': 8,
      'classes_least': 1,
      'classes_most': 200,
      'examples_per_client': 13,
    },
  ),
  (
    data_set.Set(
      'inaturalist-user-120k',
      {
        data_set.CLIENTS: data_set.printed('9,275'),
        data_set.EXAMPLES: data_set.printed('120,300'),
        data_set.CLASSES: data_set.printed('1,203'),
        data_set.TEST: data_set.printed('35,641', origin="by TFF's text"),
        data_set.EMD: data_set.printed('1.83', 0.01, 'from memory'),
      },
    ),
    *(
      data_set.Set(f'inaturalist-geo-{size}', {data_set.CLIENTS: number})
      for size, number in (
        ('30k', data_set.printed('11')),
        *(
          (size, _derived(clients))
          for size, clients in (
            *(('10k', '38'), ('3k', '135'), ('1k', '368')),
            ('300', '1,208'),
          )
        ),
        ('100', data_set.printed('3,606')),
      )
    ),
  ),
  'clients',
)
_PHOTOGRAPHERS = data_set.Statistics(
  # Classes from 21 to 399 a client, 90 on the mean, of 2,028; the share of all
  # examples that are of a client's own classes is 5 to 10 %.
  data_set.Set(
    'glyphs-landmarks',
    {
      data_set.CLIENTS: data_set.exactly(1_262),
      data_set.CLASSES: data_set.exactly(2_028),
      data_set.TEST: data_set.exactly(19_526),
      data_set.MEAN: data_set.between(125, 137),
      data_set.HELD: data_set.between(87, 93),
      data_set.MOST_HELD: data_set.between(380, 399),
      data_set.EMD: data_set.between(1.75, 1.95),
    },
  ),
  (
    data_set.Set(
      'landmarks-user-160k',
      {
        data_set.CLIENTS: data_set.printed('1,262'),
        data_set.EXAMPLES: data_set.printed('164,172'),
        data_set.CLASSES: data_set.printed('2,028'),
        data_set.TEST: data_set.printed('19,526'),
        data_set.MEAN: data_set.printed('130.1'),
        data_set.HELD: data_set.printed('90', 0.006),
        data_set.MOST_HELD: data_set.printed('399'),
        data_set.EMD: data_set.printed('1.94', 0.01, 'from memory'),
      },
    ),
  ),
  'labels',
)

STATISTICS: Mapping[str, data_set.Statistics] = {
  'fedaws/table2': _FEDAWS,
  'turbosvm-fl/table1': _TURBOSVM,
  'turbosvm-fl/fig3': _TURBOSVM._replace(picture='sizes'),
  'fedmlh/table1': _FEDMLH,
  'fedvc/fig2': _USERS,
  'fedvc/fig3': _PHOTOGRAPHERS,
}


def _expected(
  task: str, numbers: Mapping[str, data_set.Number]
) -> tuple[result.Expected, ...]:
  return tuple(
    result.Expected(
      '', data_set.name(task, statistic), number.least, number.most
    )
    for statistic, number in numbers.items()
  )


def study(
  paper: str, source: str, number: str, caption: str, notes: str = ''
) -> result.Study:
  """Returns the result of these names; `STATISTICS` has its numbers."""
  found = STATISTICS[
    result.Diagram(paper=paper, number=number, source='', caption='').name
  ]
  tasks = [each.task for each in found.sets]
  return result.Study(
    paper=paper,
    number=number,
    source=source,
    caption=caption,
    notes=notes,
    module='data_statistics',
    small=f'Procedural data: task {found.small.task}',
    expected=_expected(found.small.task, found.small.numbers),
    # Of what others state, none tells whether the paper's result is reproduced.
    published=tuple(
      e for each in found.sets for e in _expected(each.task, each.published)
    ),
    needs=f'the data of {", ".join(tasks)}; of one with --task',
  )
