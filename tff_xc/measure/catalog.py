"""Every metric, named once, without importing TensorFlow or NumPy.

`SCORES` are measured by evaluations; they are the columns of "final" and "best"
in summary.json. `ROUND` are measured in every round, and `STEPS` in those of some
algorithms. A file of metrics may have more columns, of an algorithm of one's own.
"""

from collections.abc import Collection
from collections.abc import Mapping
from typing import TYPE_CHECKING
from typing import NamedTuple

if TYPE_CHECKING:
  import pandas as pd

# The k of P@k, nDCG@k and PSP@k.
AT = (1, 3, 5)


class Metric(NamedTuple):
  """A metric.

  Attributes:
    heading: its name in tables and legends.
    meaning: its definition, in one line.
    needs: the parts of a data set or model that it is computed from: 'test',
      'validation', 'retrieval', 'propensity', 'train', 'class rows'. Empty for `ROUND`.
    unit: 'fraction', printed in percent ('mcc' may be negative); 'distance' of
      unit vectors, in [0, 2]; 'bytes', 'rows', 'examples', 'clients',
      'batches', 'parameters', 'seconds', 'norm' or 'loss'.
    better: 'higher', 'lower', or 'neither'.
  """

  heading: str
  meaning: str
  needs: tuple[str, ...] = ()
  unit: str = 'fraction'
  better: str = 'higher'

  def best(self, values: 'pd.Series') -> float:
    """Returns the best of a column's values; nan if it has none but nan."""
    return float(values.min() if self.better == 'lower' else values.max())


def _at_each_k(
  name: str, heading: str, meaning: str, needs: tuple[str, ...]
) -> dict[str, Metric]:
  return {
    f'{name}@{k}': Metric(f'{heading}@{k}', meaning.format(k=k), needs)
    for k in AT
  }


SCORES: Mapping[str, Metric] = {
  'top1': Metric(
    'top-1', 'test examples whose class is ranked first', ('test',)
  ),
  'macro_f1': Metric(
    'macro F1',
    'mean F1 of the classes among the test labels or the predictions',
    ('test',),
  ),
  'mcc': Metric(
    'MCC',
    'Matthews correlation of predicted and true classes; from -1 to 1, 0: chance',
    ('test',),
  ),
  **_at_each_k(
    'p', 'P', 'share of labels among the {k} ranked first', ('test',)
  ),
  **_at_each_k(
    'pc',
    'capped P',
    'labels among the {k} ranked first, over at most the labels that there are',
    ('test',),
  ),
  **{
    f'pc@{k}_{part}': Metric(
      f'capped P@{k} {part}',
      f'part of capped P@{k} by labels of {of} 1 % of the training examples',
      ('test', 'propensity'),
    )
    for part, of in (('frequent', 'at least'), ('infrequent', 'less than'))
    for k in AT
  },
  'pc_mean': Metric(
    'mean capped P', 'mean of capped P@1, P@3 and P@5', ('test',)
  ),
  'pc_mean_validation': Metric(
    'validation capped P',
    'mean of capped P@1, P@3 and P@5 on validation examples',
    ('validation',),
  ),
  **_at_each_k(
    'ndcg',
    'nDCG',
    'labels among the {k} ranked first, discounted by rank, over the best'
    ' possible',
    ('test',),
  ),
  **_at_each_k(
    'psp',
    'PSP',
    'P@{k} with labels weighted by 1 / propensity, over the best possible',
    ('test', 'propensity'),
  ),
  'map@10': Metric(
    'MAP@10',
    'mean average precision among the 10 nearest examples of unseen classes',
    ('retrieval',),
  ),
  'map@r': Metric(
    'MAP@R',
    'as MAP@10 among the R nearest; R: number of other examples of the class',
    ('retrieval',),
  ),
  'train_top1': Metric(
    'train top-1', 'training examples whose class is ranked first', ('train',)
  ),
  'class_distance_min': Metric(
    'least class distance',
    'smallest distance of two class rows of length 1',
    ('train', 'class rows'),
    'distance',
  ),
  'class_distance_mean': Metric(
    'mean class distance',
    'mean distance of two class rows of length 1; 0: collapsed',
    ('train', 'class rows'),
    'distance',
  ),
}

ROUND: Mapping[str, Metric] = {
  'loss': Metric(
    'loss',
    'training loss, mean over the examples of the round',
    unit='loss',
    better='lower',
  ),
  'accuracy': Metric(
    'local top-1',
    'training examples whose class is ranked first among the rows that their'
    ' client holds, during local training',
  ),
  'bytes_down_per_client': Metric(
    'down / client',
    'bytes that a client receives, mean',
    unit='bytes',
    better='lower',
  ),
  'bytes_up_per_client': Metric(
    'up / client',
    'bytes that a client sends, mean',
    unit='bytes',
    better='lower',
  ),
  'class_rows': Metric(
    'rows requested',
    'class rows that a client requests, mean',
    unit='rows',
    better='lower',
  ),
  'feature_rows': Metric(
    'feature rows requested',
    'rows of the feature table that a client requests, mean',
    unit='rows',
    better='lower',
  ),
  'examples': Metric(
    'examples', 'examples of the round', unit='examples', better='neither'
  ),
  'clients': Metric(
    'clients',
    'clients that trained, including dropped ones',
    unit='clients',
    better='neither',
  ),
  'clients_dropped': Metric(
    'clients dropped',
    'clients whose update was not finite',
    unit='clients',
    better='lower',
  ),
  'clients_skipped': Metric(
    'clients skipped',
    'clients without examples',
    unit='clients',
    better='neither',
  ),
  'client_dropouts': Metric(
    'client drop-outs',
    'drawn clients that left before they sent anything',
    unit='clients',
    better='neither',
  ),
  'workers': Metric(
    'workers',
    'workers that trained clients (--runtime=cluster)',
    unit='workers',
    better='neither',
  ),
  'workers_lost': Metric(
    'workers lost',
    'workers that ended or did not answer; others trained their clients'
    ' (--runtime=cluster)',
    unit='workers',
    better='lower',
  ),
  'worker_bytes_down': Metric(
    'to workers',
    'bytes from the driver to all workers in a round: what each is sent, and the'
    " server's values once for each node; not the programs (--runtime=cluster)",
    unit='bytes',
    better='lower',
  ),
  'worker_bytes_up': Metric(
    'from workers',
    'bytes from all workers to the driver in a round (--runtime=cluster)',
    unit='bytes',
    better='lower',
  ),
  'clients_zeroed': Metric(
    'clients zeroed',
    'clients whose update counted as no change (--robust=zeroing)',
    unit='clients',
    better='neither',
  ),
  'zeroing_norm': Metric(
    'zeroing norm',
    'largest number that an update may have (--robust=zeroing)',
    unit='norm',
    better='neither',
  ),
  'clients_clipped': Metric(
    'clients clipped',
    'clients whose update was scaled down (--robust=clipping)',
    unit='clients',
    better='neither',
  ),
  'clipping_norm': Metric(
    'clipping norm',
    'L2 norm to which updates are scaled down (--robust=clipping)',
    unit='norm',
    better='neither',
  ),
  'local_batches': Metric(
    'local batches',
    'minibatches of the client that took the most in the round',
    unit='batches',
    better='neither',
  ),
  'client_parameters_peak': Metric(
    'parameters held',
    'most parameters that a client holds',
    unit='parameters',
    better='lower',
  ),
  'seconds': Metric(
    's / round', 'seconds of a round', unit='seconds', better='lower'
  ),
}

# Of single algorithms' server steps.
STEPS: Mapping[str, Metric] = {
  'support_vectors': Metric(
    'support vectors',
    'clients whose row of a class is a support vector, mean over classes',
    unit='rows',
    better='neither',
  ),
  'support_vectors_least': Metric(
    'least support vectors',
    'support vectors of the class with the fewest',
    unit='rows',
    better='neither',
  ),
  'support_vectors_most': Metric(
    'most support vectors',
    'support vectors of the class with the most',
    unit='rows',
    better='neither',
  ),
  'support_vectors_class_1': Metric(
    'support vectors of class 1',
    'support vectors of class 1, as TurboSVM-FL counts them in Table 4',
    unit='rows',
    better='neither',
  ),
  'machines_stopped': Metric(
    'machines stopped',
    'support vector machines that ended at the most steps',
    better='lower',
  ),
  'pair_similarity': Metric(
    'pair similarity',
    'similarity of two class rows along the normal between them, mean over pairs',
    better='lower',
  ),
}

METRICS: Mapping[str, Metric] = {**SCORES, **ROUND, **STEPS}
# Scores of test or retrieval examples; of these, the ones that tell most.
HELD_OUT = tuple(
  name for name, m in SCORES.items() if {'test', 'retrieval'} & set(m.needs)
)
HEADLINES = ('top1', 'p@1', 'map@10')
DISTANCES = tuple(n for n, m in SCORES.items() if m.unit == 'distance')


def measurable(
  names: Collection[str], present: Collection[str]
) -> tuple[str, ...]:
  """Returns those of the scores `names` whose needs are all `present`."""
  return tuple(n for n in names if set(SCORES[n].needs) <= set(present))
