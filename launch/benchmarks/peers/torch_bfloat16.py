"""Runs torch_side_by_side.py with matrix products in bfloat16, by PyTorch's autocast."""

import protocol
import torch_side_by_side

protocol.serve(lambda: torch_side_by_side.build(is_bfloat16=True))
