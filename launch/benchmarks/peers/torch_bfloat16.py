"""torch_side_by_side.py with products in bfloat16, by PyTorch's autocast.

Runs under an interpreter that has torch: torch_bfloat16.py ARRAYS.npz [N].
"""

import torch

# Without the cache, which would keep the first weights.
with torch.autocast('cpu', torch.bfloat16, cache_enabled=False):
  import torch_side_by_side  # noqa: F401 serves rounds
