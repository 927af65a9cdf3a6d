"""Clients by frequent labels, as FedMLH splits multi-label sets.

The published code and the paper have different rules; both are here.
"""

import numpy as np

from datasets import examples as examples_lib
from tff_xc import errors
from tff_xc.data import partition as partition_lib


def partition(
  examples: examples_lib.Examples,
  seed,
  *,
  clients: int,
  variant: str,
  frequency: float,
  counts: np.ndarray | None = None,
) -> partition_lib.Partition:
  """Assigns examples to clients by their frequent labels.

  code: client i gets floor(N / K) examples of the i-th most frequent label. Of a
  label with more examples, some are drawn without replacement. A label with fewer
  is filled up with examples drawn without replacement from the first K floor(N /
  K) of the set; some of these may be the label's own, and are then twice with the
  client. Clients overlap, and examples of rare labels only may be with nobody.

  paper: all examples of a frequent label go to one client, drawn at random for
  each label; examples without a frequent label are dealt to random clients. A
  client has each example once, though several clients may have it.

  Args:
    examples: N, with sets of labels.
    seed: of all draws.
    clients: K.
    variant: 'code' or 'paper'.
    frequency: the share of the examples from which a label is frequent, for
      'paper'.
    counts: int [n], by which labels are frequent; None: how many examples have
      each.

  Raises:
    errors.InputError: there are fewer labels with examples, or fewer examples,
      than clients.
  """
  size, by_label = len(examples), examples.labels.tocsc()
  if counts is None:
    counts = np.diff(by_label.indptr)
  if clients > size:
    raise errors.InputError(
      f'{size} examples are too few for {clients} clients'
    )
  random = np.random.default_rng(seed)
  of_label = lambda label: by_label.indices[
    by_label.indptr[label] : by_label.indptr[label + 1]
  ].astype(np.int64)
  if variant == 'code':
    parts = _as_in_the_code(of_label, counts, size, clients, random)
  else:
    frequent = np.flatnonzero(counts >= max(1, frequency * size))
    parts = _as_in_the_paper(of_label, frequent, size, clients, random)
  width = len(str(clients - 1))
  return partition_lib.of_clients(
    {f'client/{i:0{width}d}': part for i, part in enumerate(parts)}
  )


def _as_in_the_code(of_label, counts, size, num_clients, random):
  # The lower label first where two are as frequent.
  commonest = np.argsort(-counts, kind='stable')[:num_clients]
  if len(commonest) < num_clients or not counts[commonest].all():
    raise errors.InputError(
      f'{np.count_nonzero(counts)} labels have examples: too few for'
      f' {num_clients} clients of one frequent label each'
    )
  share = size // num_clients
  parts = []
  for label in commonest:
    own = of_label(label)
    if len(own) >= share:
      own = random.choice(own, share, replace=False)
    else:
      more = random.choice(num_clients * share, share - len(own), replace=False)
      own = np.concatenate([own, more])
    parts.append(own)
  return parts


def _as_in_the_paper(of_label, frequent, size, num_clients, random):
  owners = random.integers(0, num_clients, len(frequent))
  has_frequent = np.zeros(size, bool)
  parts = [[] for _ in range(num_clients)]
  for label, owner in zip(frequent, owners, strict=True):
    own = of_label(label)
    has_frequent[own] = True
    parts[owner].append(own)
  rest = np.flatnonzero(~has_frequent)
  of_rest = random.integers(0, num_clients, len(rest))
  return [
    np.unique(np.concatenate([*part, rest[of_rest == i]]).astype(np.int64))
    for i, part in enumerate(parts)
  ]
