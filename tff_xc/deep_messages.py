"""Lets protocol buffers nest as deeply as TFF's computations do.

Python's protobuf refuses a message that is nested more than 100 levels deep, with
"DecodeError: Error parsing message". TFF nests a level or more for each aggregator
around another, and `tff.learning.ddp_secure_aggregator` needs more.
"""

from google.protobuf.internal import api_implementation


def allow() -> None:
  """Allows them in this process. Without effect where protobuf has no such limit."""
  # No public name leads to it in protobuf 4.
  module = api_implementation._c_module
  if hasattr(module, 'SetAllowOversizeProtos'):
    module.SetAllowOversizeProtos(True)
