"""Defines every metric, without importing TensorFlow or NumPy.

Evaluations measure `SCORES`, which are the keys of "final" and "best" in summary.json. Every
round measures `ROUND`. The rounds of some algorithms also measure `STEPS`. A metrics.csv has
more columns if a user's algorithm adds metrics.
"""

import re
from collections.abc import Collection, Mapping
from typing import NamedTuple

from tff_xc.lazy import pd

# The values of k in metrics such as P@k. Metrics that rank longer lists, such as hit@k, have the
# values of `_OF_LISTS`. MAP@10 exists only with k = 10.
AT = (1, 3, 5)
_OF_LISTS = (*AT, 10, 20)


class Metric(NamedTuple):
  """The heading, definition and properties of a metric."""

  heading: str  # The metric's name in tables and legends.
  meaning: str  # The metric's definition in one line.
  # The metric is computed from these parts of a data set or model: 'test', 'validation',
  # 'retrieval', 'propensity', 'train', 'class rows', 'clients'. Metrics of `ROUND` have none.
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
    share of test examples whose class is ranked first
top5 | top-5 | fraction | higher | test
    share of test examples whose class is among the 5 classes ranked first; equals hit@5
    and recall@5, because each example has one label
macro_f1 | macro F1 | fraction | higher | test
    mean of the F1 scores of all classes that are a test label or a prediction
mcc | MCC | fraction | higher | test
    Matthews correlation of predicted and true classes, from -1 to 1; 0 is chance
test_loss | test loss | loss | lower | test + class rows
    mean cross-entropy of test examples, with the softmax over all classes; with two
    classes, binary cross-entropy
p@{k} | P@{k} | fraction | higher | test
    share of the {k} labels ranked first that the example has; mean over test examples
pc@{k} | capped P@{k} | fraction | higher | test
    number of the example's labels among the {k} ranked first, divided by {k}, or by the
    example's number of labels if this number is smaller; mean over test examples
pc@{k}_frequent | capped P@{k} frequent | fraction | higher | test + propensity
    part of capped P@{k} from frequent labels, which at least 1 % of the training examples
    have
pc@{k}_infrequent | capped P@{k} infrequent | fraction | higher | test + propensity
    part of capped P@{k} from infrequent labels, which less than 1 % of the training
    examples have
pc_mean | mean capped P | fraction | higher | test
    mean of capped P@1, P@3 and P@5
pc_mean_validation | validation capped P | fraction | higher | validation
    mean of capped P@1, P@3 and P@5 on validation examples
ndcg@{list} | nDCG@{list} | fraction | higher | test
    sum over the example's labels among the {list} ranked first, discounted by rank,
    divided by the largest possible sum; mean over test examples
psp@{k} | PSP@{k} | fraction | higher | test + propensity
    P@{k} in which each label counts 1 / propensity, divided by its largest possible value
hit@{list} | hit@{list} | fraction | higher | test
    share of test examples that have at least one of the {list} labels ranked first
recall@{list} | recall@{list} | fraction | higher | test
    share of the example's labels that are among the {list} ranked first; mean over test
    examples
map@10 | MAP@10 | fraction | higher | retrieval
    mean average precision among the 10 nearest examples of unseen classes
map@r | MAP@R | fraction | higher | retrieval
    mean average precision among the R nearest examples of unseen classes; R is the number
    of other examples in the class of the query
retrieval_recall@{k} | R@{k} | fraction | higher | retrieval
    share of examples of unseen classes that have an example of the same class among
    their {k} nearest
train_top1 | train top-1 | fraction | higher | train
    share of training examples whose class is ranked first
class_distance_min | least class distance | distance | higher | train + class rows
    smallest distance between two class rows scaled to length 1
class_distance_mean | mean class distance | distance | higher | train + class rows
    mean distance between two class rows scaled to length 1; 0: all rows are equal
"""
_ROUND = """
loss | loss | loss | lower
    mean training loss of the round's examples
loss_largest | largest loss | loss | lower
    largest mean training loss of a client, among the clients whose updates count
    (--largest_loss)
local_accuracy | local top-1 | fraction | higher
    share of training examples whose class is ranked first among the received class
    rows, during local training
bytes_down_per_client | down / client | bytes | lower
    mean number of bytes that a client receives
bytes_up_per_client | up / client | bytes | lower
    mean number of bytes that a client sends
class_rows | rows requested | rows | lower
    mean number of class rows that a client requests
feature_rows | feature rows requested | rows | lower
    mean number of rows of the feature table that a client requests
examples | examples | examples | neither
    number of training examples in the round
clients | clients | clients | neither
    number of clients that trained, including clients whose updates were dropped
clients_dropped | clients dropped | clients | lower
    number of clients whose updates were dropped because they were not finite
clients_skipped | clients skipped | clients | neither
    number of sampled clients that have no examples
client_dropouts | client drop-outs | clients | neither
    number of sampled clients that left before they sent anything
client_attackers | client attackers | clients | neither
    number of participating clients that attack (--attack)
workers | workers | workers | neither
    number of workers that trained clients (--runtime=cluster)
workers_lost | workers lost | workers | lower
    number of workers that ended or did not answer, so that other workers trained their
    clients (--runtime=cluster)
worker_bytes_down | to workers | bytes | lower
    bytes that the driver sends to all workers in a round: the messages of each worker,
    and the server's values once for each node, but not the programs (--runtime=cluster)
worker_bytes_up | from workers | bytes | lower
    bytes that all workers send to the driver in a round (--runtime=cluster)
epsilon | epsilon | epsilon | lower
    epsilon of the model's differential privacy up to this round, for --dp_delta; measured
    in rounds with an evaluation (--dp)
rows_chosen | rows chosen | rows | neither
    number of rows of all tables that are chosen for an update and noise
    (--dp_rows=chosen)
clients_rows_clipped | rows clipped | clients | neither
    number of clients whose rows have a number that was clipped to --secure_bound
    (--secure_sums)
clients_zeroed | clients zeroed | clients | neither
    number of clients whose update was replaced by zeros (--robust_aggregation)
zeroing_norm | zeroing norm | norm | neither
    largest absolute number that an update may have; other updates are replaced by zeros
    (--robust_aggregation)
clients_clipped | clients clipped | clients | neither
    number of clients whose update was scaled down (--robust_aggregation)
clipping_norm | clipping norm | norm | neither
    L2 norm to which larger updates are scaled down (--robust_aggregation)
local_batches | local batches | batches | neither
    largest number of minibatches of a client in the round
client_parameters_peak | parameters held | parameters | lower
    largest number of parameters that a client holds
seconds | s / round | seconds | lower
    duration of a round in seconds
"""
# Scores of a run that evaluates single clients (--evaluate_clients).
_CLIENTS = """
client_top1_mean | client top-1 | fraction | higher | clients
    share of a client's held-out examples for which the class ranked first is right (one
    of the labels, if examples have several); mean over clients, which are the same at
    every evaluation
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
    number of clients whose row of a class is a support vector; mean over classes
support_vectors_least | least support vectors | rows | neither
    number of support vectors of the class with the fewest
support_vectors_most | most support vectors | rows | neither
    number of support vectors of the class with the most
support_vectors_class_1 | support vectors of class 1 | rows | neither
    number of support vectors of class 1, as in Table 4 of TurboSVM-FL
machines_stopped | machines stopped | fraction | lower
    share of support vector machines that stopped at the maximum number of steps
pair_similarity | pair similarity | fraction | lower
    similarity of two class rows along the normal of their SVM; mean over pairs
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
# A run can choose a round by these scores without looking at test examples. `tasks.experiment`
# refuses a choice by scores of clients whose held-out examples are the test examples.
FOR_CHOOSING = tuple(n for n in SCORES if n.endswith(VALIDATION) or n in OF_CLIENTS)
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
