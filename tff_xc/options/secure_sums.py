"""Secure sums: the server learns sums of updates, and no single one.

Encoder and rows are summed by `tff.federated_secure_sum_bitwidth`, for which numbers
are clipped to a bound and become integers of 32 bits: Bonawitz et al.: "Practical Secure
Aggregation for Privacy-Preserving Machine Learning", CCS 2017. A deployment of TFF puts
such a protocol in the operator's place; a simulation adds the integers. Clients count
alike, so that weights say nothing.

It needs tables that all clients receive and send whole: a sum by ids would show the ids.
"""

from __future__ import annotations

import dataclasses

from tff_xc import errors
from tff_xc.lazy import tff
from tff_xc.options import hyperparameters as hp, option


@hp.declared
class SecureSums(option.Option):
  """Whether the server sees only sums of updates; larger numbers are clipped to a bound."""

  secure_sums: bool = hp.field(
    False,
    'add up updates by secure sums, in which the server sees no single update. Clients must'
    ' send whole tables, and have equal weights',
  )
  secure_bound: float = hp.field(
    1.0,
    "largest absolute value of a number of a client's update in a secure sum. Larger numbers"
    ' are clipped',
    above=0,
    of='secure_sums',
    only_with=(True,),
  )

  def added(self, algorithm, facts):
    """Raises `errors.InputError` if clients request rows, or the server needs them singly."""
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
