"""torch_side_by_side.py with products in bfloat16, by PyTorch's autocast.

Runs under an interpreter that has torch: torch_bfloat16.py ARRAYS.npz [N].
"""

import sys

import inputs
import protocol
import torch
import torch_side_by_side

# Without the cache, which would keep the first weights.
with torch.autocast('cpu', torch.bfloat16, cache_enabled=False):
  protocol.serve(
    lambda: torch_side_by_side.Rounds(inputs.load(*sys.argv[1:])).run
  )
