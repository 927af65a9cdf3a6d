"""Lets protocol buffers nest as deeply as TFF's computations do.

Python's protobuf refuses a message that is nested more than 100 levels deep, with
"DecodeError: Error parsing message". Each TFF aggregator around another adds at least
one level, and `tff.learning.ddp_secure_aggregator` exceeds 100.
"""

from google.protobuf.internal import api_implementation


def allow() -> None:
  """Lifts the limit in this process, if protobuf has the limit."""
  # Protobuf 4 has no public name for this module.
  module = api_implementation._c_module
  if hasattr(module, 'SetAllowOversizeProtos'):
    module.SetAllowOversizeProtos(True)
