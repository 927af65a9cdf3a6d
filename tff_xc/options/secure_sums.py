"""Secure sums: the server learns only sums of updates, not single updates.

Clients clip the numbers of encoder and rows to a bound and convert them to 32-bit integers.
`tff.federated_secure_sum_bitwidth` sums these integers. A deployment of TFF replaces this operator
by a secure protocol, such as Bonawitz et al.: "Practical Secure Aggregation for Privacy-Preserving
Machine Learning", CCS 2017. A simulation only adds the integers. All clients have equal weights, so
weights reveal nothing.

All clients must receive and send whole tables, because sums by row id would reveal the ids.
"""

import dataclasses

from tff_xc import errors
from tff_xc.lazy import tff
from tff_xc.options import hyperparameters as hp, option


@hp.declared
class SecureSums(option.Option):
  """Sums updates securely. Clients first clip the numbers of an update to a bound."""

  secure_sums: bool = hp.field(
    False,
    'add up the updates by secure sums, which hide single updates from the server. All clients'
    ' then have equal weights. Works only with algorithms whose clients send all class rows, such'
    ' as fedavg, fullsoftmax and fedmlh',
  )
  secure_bound: float = hp.field(
    1.0,
    "clip each number of a client's update to this absolute value before the secure sum",
    above=0,
    of='secure_sums',
    only_with=(True,),
  )

  def added(self, algorithm, facts):
    """Raises InputError if clients select rows, or if the server needs each client's rows."""
    from tff_xc.round import merge

    if not self.secure_sums:
      return algorithm
    tables = []
    for table in algorithm.tables:
      joined = table.merge
      if joined.sends_rows:
        sums = isinstance(joined, merge.SumRows) and joined.sends_deltas
        if table.request.selects or not sums:
          raise errors.InputError(
            'secure sums are of whole tables, and here the server sees which rows of'
            f' the table {table.name!r} each client sends, or their values: choose'
            ' fedavg, fullsoftmax or fedmlh (whose clients receive all rows), or leave'
            ' out --secure_sums'
          )
        joined = dataclasses.replace(joined, secure_bound=self.secure_bound)
      tables.append(dataclasses.replace(table, merge=joined))
    return dataclasses.replace(
      algorithm,
      tables=tuple(tables),
      model_aggregator=tff.aggregators.MeanFactory(
        tff.aggregators.SecureSumFactory(self.secure_bound),
        tff.aggregators.SecureSumFactory(1.0, 0.0),  # Weights are 0 or 1.
        no_nan_division=True,
      ),
      weighting='uniform',
    )
