"""Defines every metric, without importing TensorFlow or NumPy.

Evaluations measure `SCORES`, which are the keys of "final" and "best" in summary.json. Every
round measures `ROUND`. The rounds of some algorithms also measure `STEPS`. A metrics.csv has
further columns if a user's algorithm adds metrics.
"""

import re
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
  import pandas as pd

# The values of k in metrics such as P@k, and in metrics such as hit@k that rank longer lists.
# MAP@10 exists only with k = 10.
AT = (1, 3, 5)
_OF_LISTS = (*AT, 10, 20)


class Metric(NamedTuple):
  """The heading, definition and properties of a metric."""

  heading: str  # The metric's name in tables and legends.
  meaning: str  # The metric's definition in one line.
  # The metric is computed from these parts of a data set or model: 'test', 'validation',
  # 'retrieval', 'propensity', 'train', 'class rows', 'clients'. `ROUND` needs none.
  needs: tuple[str, ...] = ()
  # 'fraction', which is printed in percent and may be negative for 'mcc'; 'distance' between
  # unit vectors, in [0, 2]; 'bytes', 'rows', 'examples', 'clients', 'batches', 'parameters',
  # 'seconds', 'norm', 'loss' or 'epsilon'.
  unit: str = 'fraction'
  better: str = 'higher'  # 'higher', 'lower', or 'neither'.

  def best(self, values: 'pd.Series') -> float:
    """Returns the best value of a column; nan if all values are nan."""
    return float(values.min() if self.better == 'lower' else values.max())


# The first line of an entry is name | heading | unit | better | needs. The next lines are the
# meaning. An entry with {k} defines a metric for each k in `AT`. An entry with {list} defines a
# metric for each k in `_OF_LISTS`.
_SCORES = """
top1 | top-1 | fraction | higher | test
    test examples whose class is ranked first
top5 | top-5 | fraction | higher | test
    test examples whose class is among the 5 ranked first; equals hit@5 and recall@5, as
    each example has one label
macro_f1 | macro F1 | fraction | higher | test
    mean F1 of the classes among the test labels or the predictions
mcc | MCC | fraction | higher | test
    Matthews correlation of predicted and true classes; from -1 to 1, 0: chance
test_loss | test loss | loss | lower | test + class rows
    cross-entropy of the softmax over all classes (binary cross-entropy if there are two),
    mean over test examples
p@{k} | P@{k} | fraction | higher | test
    share of labels among the {k} ranked first
pc@{k} | capped P@{k} | fraction | higher | test
    labels among the {k} ranked first, over {k} or the example's number of labels if that
    is smaller
pc@{k}_frequent | capped P@{k} frequent | fraction | higher | test + propensity
    part of capped P@{k} that comes from labels of at least 1 % of the training examples
pc@{k}_infrequent | capped P@{k} infrequent | fraction | higher | test + propensity
    part of capped P@{k} that comes from labels of less than 1 % of the training examples
pc_mean | mean capped P | fraction | higher | test
    mean of capped P@1, P@3 and P@5
pc_mean_validation | validation capped P | fraction | higher | validation
    mean of capped P@1, P@3 and P@5 on validation examples
ndcg@{list} | nDCG@{list} | fraction | higher | test
    labels among the {list} ranked first, discounted by rank, over the best possible value
psp@{k} | PSP@{k} | fraction | higher | test + propensity
    P@{k} with labels weighted by 1 / propensity, over the best possible value
hit@{list} | hit@{list} | fraction | higher | test
    test examples with a label among the {list} ranked first
recall@{list} | recall@{list} | fraction | higher | test
    share of an example's labels that are among the {list} ranked first
map@10 | MAP@10 | fraction | higher | retrieval
    mean average precision among the 10 nearest examples of unseen classes
map@r | MAP@R | fraction | higher | retrieval
    mean average precision among the R nearest examples of unseen classes, where the class
    of the query has R other examples
retrieval_recall@{k} | R@{k} | fraction | higher | retrieval
    examples of unseen classes with an example of the same class among the {k} nearest
train_top1 | train top-1 | fraction | higher | train
    training examples whose class is ranked first
class_distance_min | least class distance | distance | higher | train + class rows
    smallest distance between two class rows scaled to length 1
class_distance_mean | mean class distance | distance | higher | train + class rows
    mean distance between two class rows scaled to length 1; 0: all rows are equal
"""
_ROUND = """
loss | loss | loss | lower
    training loss, mean over the examples of the round
loss_largest | largest loss | loss | lower
    largest training loss of a client, mean over its examples, among clients whose
    update counts (--largest_loss)
local_accuracy | local top-1 | fraction | higher
    training examples whose class is ranked first among the rows that the
    client received, during local training
bytes_down_per_client | down / client | bytes | lower
    bytes that a client receives, mean
bytes_up_per_client | up / client | bytes | lower
    bytes that a client sends, mean
class_rows | rows requested | rows | lower
    class rows that a client requests, mean
feature_rows | feature rows requested | rows | lower
    rows of the feature table that a client requests, mean
examples | examples | examples | neither
    examples of the round
clients | clients | clients | neither
    clients that trained, including dropped ones
clients_dropped | clients dropped | clients | lower
    clients whose update was not finite
clients_skipped | clients skipped | clients | neither
    clients without examples
client_dropouts | client drop-outs | clients | neither
    sampled clients that left before they sent anything
client_attackers | client attackers | clients | neither
    participating clients that attack (--attack)
workers | workers | workers | neither
    workers that trained clients (--runtime=cluster)
workers_lost | workers lost | workers | lower
    workers that ended or did not answer; other workers trained their clients
    (--runtime=cluster)
worker_bytes_down | to workers | bytes | lower
    bytes from the driver to all workers in a round: each worker's messages, and the
    server's values once for each node, without the programs (--runtime=cluster)
worker_bytes_up | from workers | bytes | lower
    bytes from all workers to the driver in a round (--runtime=cluster)
epsilon | epsilon | epsilon | lower
    epsilon of the model's differential privacy so far, for the given --dp_delta; only in
    rounds with an evaluation (--dp)
rows_chosen | rows chosen | rows | neither
    rows of all tables that are chosen for an update and noise (--dp_rows=chosen)
clients_rows_clipped | rows clipped | clients | neither
    clients with a number in their rows that was clipped to --secure_bound (--secure_sums)
clients_zeroed | clients zeroed | clients | neither
    clients whose update counted as no change (--robust_aggregation)
zeroing_norm | zeroing norm | norm | neither
    an update with a larger absolute number counts as no change (--robust_aggregation)
clients_clipped | clients clipped | clients | neither
    clients whose update was scaled down (--robust_aggregation)
clipping_norm | clipping norm | norm | neither
    L2 norm to which updates are scaled down (--robust_aggregation)
local_batches | local batches | batches | neither
    minibatches of the client that took the most in the round
client_parameters_peak | parameters held | parameters | lower
    most parameters that a client holds
seconds | s / round | seconds | lower
    seconds of a round
"""
# Scores of a run that evaluates single clients (--evaluate_clients).
_CLIENTS = """
client_top1_mean | client top-1 | fraction | higher | clients
    share of a client's held-out examples whose first-ranked class is right (is one of
    the labels, for sets of labels), mean over the same clients at every evaluation
client_top1_median | client top-1 median | fraction | higher | clients
    median of these clients' shares
client_top1_p10 | client top-1 p10 | fraction | higher | clients
    10th percentile of these clients' shares
client_top1_worst | client top-1 worst tenth | fraction | higher | clients
    mean of the lowest tenth of these clients' shares
client_top1_std | client top-1 std | fraction | lower | clients
    standard deviation of these clients' shares
"""
# Metrics that the server steps of some algorithms measure.
_STEPS = """
support_vectors | support vectors | rows | neither
    clients whose row of a class is a support vector, mean over classes
support_vectors_least | least support vectors | rows | neither
    number of support vectors of the class with the fewest
support_vectors_most | most support vectors | rows | neither
    number of support vectors of the class with the most
support_vectors_class_1 | support vectors of class 1 | rows | neither
    support vectors of class 1, as TurboSVM-FL counts them in Table 4
machines_stopped | machines stopped | fraction | lower
    support vector machines that stopped at the maximum number of steps
pair_similarity | pair similarity | fraction | lower
    similarity of two class rows along the normal between them, mean over pairs
"""


def _read(text: str) -> Mapping[str, Metric]:
  """Parses a text such as `_SCORES`. Returns metrics by name, in the order of the text."""
  found = {}
  for entry in re.split(r'\n(?! )', text.strip()):
    head, *meaning = (line.strip() for line in entry.splitlines())
    ks = AT if '{k}' in head else _OF_LISTS if '{list}' in head else AT[:1]
    for k in ks:
      said = ' '.join(meaning).format(k=k, list=k)
      head_of_k = head.format(k=k, list=k)
      name, heading, unit, better, *needs = head_of_k.split(' | ')
      needs = tuple(needs[0].split(' + ')) if needs else ()
      found[name] = Metric(heading, said, needs, unit, better)
  return found


SCORES, ROUND, STEPS = map(_read, (_SCORES, _ROUND, _STEPS))
OF_CLIENTS = tuple(_read(_CLIENTS))
SCORES |= _read(_CLIENTS)
# A score with this suffix is measured on validation examples. A run may select its best round
# by this score.
VALIDATION = '_validation'
for _name, _of_test in list(SCORES.items()):
  if _of_test.needs == ('test',) and _name + VALIDATION not in SCORES:
    SCORES[_name + VALIDATION] = _of_test._replace(
      heading=f'validation {_of_test.heading}',
      meaning=f'{_name} of the validation examples',
      needs=('validation',),
    )
METRICS: Mapping[str, Metric] = {**SCORES, **ROUND, **STEPS}
# Scores of test or retrieval examples with the unit 'fraction'.
HELD_OUT = tuple(
  name
  for name, m in SCORES.items()
  if {'test', 'retrieval'} & set(m.needs) and m.unit == 'fraction'
)
# Scores that need exactly one label for each example.
OF_ONE_LABEL = ('top1', 'top5', 'macro_f1', 'mcc', 'test_loss', 'train_top1')
OF_ONE_LABEL += tuple(n + VALIDATION for n in OF_ONE_LABEL[:4])
HEADLINES = ('top1', 'p@1', 'map@10', 'hit@10')
DISTANCES = tuple(n for n, m in SCORES.items() if m.unit == 'distance')


def measurable(names: Collection[str], present: Collection[str]) -> tuple[str, ...]:
  """Returns the scores among `names` whose needs are all `present`."""
  return tuple(n for n in names if set(SCORES[n].needs) <= set(present))


def ranks(names: Collection[str]) -> tuple[int, ...]:
  """Returns each k of `AT` and of the list metrics in `names`, in ascending order."""
  lists = ('ndcg@', 'hit@', 'recall@')
  names = [n.removesuffix(VALIDATION) for n in names if n.startswith(lists)]
  more = {int(n.partition('@')[2]) for n in names}
  return tuple(sorted({*AT, *more}))
