"""Lets protocol buffers nest as deeply as TFF's computations do.

Python's protobuf refuses messages that are nested more than 100 levels deep, with
"DecodeError: Error parsing message". In TFF, aggregators can contain aggregators, and each
adds at least one level. `tff.learning.ddp_secure_aggregator` exceeds 100 levels.
"""

from google.protobuf.internal import api_implementation


def allow() -> None:
  """Removes the limit in this process, if this version of protobuf has the limit."""
  # Protobuf 4 has no public name for this module.
  module = api_implementation._c_module
  if hasattr(module, 'SetAllowOversizeProtos'):
    module.SetAllowOversizeProtos(True)
