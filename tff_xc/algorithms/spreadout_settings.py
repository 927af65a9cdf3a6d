"""Hyper-parameters of the spreadout step, and a warning about its size."""

from tff_xc.algorithms import hyperparameters as hp

WEIGHT = hp.Hyperparameter(
  'spreadout_weight',
  10.0,
  'lambda, weight of the spreadout step (FedAwS: 10)',
  least=0,
)
MARGIN = hp.Hyperparameter(
  'spreadout_margin',
  0.0,
  'nu: if positive, the spreadout step separates all classes nearer than nu'
  ' (eq. 7), not the nearest ones (eq. 8)',
  least=0,
)
NEIGHBOURS = hp.Hyperparameter(
  'spreadout_neighbours',
  10,
  'k, number of nearest classes from which the spreadout step separates a'
  ' class; 0: all others',
  least=0,
  of='spreadout_margin',
  only_with=(0.0,),
)
DISTANCE = hp.Hyperparameter(
  'spreadout_distance',
  'sq_euclidean',
  'distance of two class rows in the spreadout step',
  choices=('sq_euclidean', 'cosine'),
)
CLASSES = hp.Hyperparameter(
  'spreadout_classes',
  'round',
  "classes of the spreadout step: those of the round's clients, or all",
  choices=('round', 'all'),
)
SPREADOUT = (
  WEIGHT,
  hp.Hyperparameter(
    'spreadout_learning_rate',
    0.001,
    'eta of the spreadout step; its size lambda eta must be below 1 / (2 k); 0:'
    ' client_learning_rate',
    least=0,
  ),
  MARGIN,
  NEIGHBOURS,
  DISTANCE,
  CLASSES,
)


def warn(values, num_classes: int, max_positives: int) -> list[str]:
  """Returns a warning if the spreadout step is beyond its bound."""
  from tff_xc.algorithms import spreadout

  if not values['spreadout_weight']:
    return []
  step, factors = values['spreadout_weight'], ['--spreadout_weight']
  if 'spreadout_learning_rate' in values:
    rate = values['spreadout_learning_rate'] or values['client_learning_rate']
    step, factors = step * rate, [*factors, '--spreadout_learning_rate']
  rows = num_classes
  if values.get('spreadout_classes') == 'round':
    rows = min(rows, values['clients_per_round'] * max_positives)
  margin = values.get('spreadout_margin', 0.0)
  limit = spreadout.Spreadout(
    step, values.get('spreadout_neighbours', 0), margin=margin
  ).step_limit(rows)
  if step < limit:
    return []
  or_k = '' if margin else ', or --spreadout_neighbours'
  return [
    f'the spreadout step {" times ".join(factors)} is {step:.3g}, and from'
    f' {limit:.3g} = 1 / (2 k) on class rows may collapse: lower one of'
    f' them{or_k}'
  ]
