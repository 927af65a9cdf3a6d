"""Plain PyTorch on one GPU, as a contender.

Runs under an interpreter that has torch for CUDA: torch_gpu.py ARRAYS.npz [N].
Federated averaging of LEAF's FEMNIST CNN from the weights in the file, in full
float32. One model is trained in place for one client after another; data, global
model and sum of changes stay on the GPU.
"""

import sys

import inputs
import protocol
import torch
import torch_network

# As this package has it; matrix products are in full float32 by default.
torch.backends.cudnn.allow_tf32 = False


class Rounds:
  """A contender of `protocol`: every client takes part in every round."""

  def __init__(self, arrays):
    if not torch.cuda.is_available():
      raise RuntimeError('torch sees no GPU')
    network = torch_network.Network(*arrays['class/kernel'].shape)
    torch_network.started(network, arrays)
    self._network = torch_network.channels_last(network.cuda())
    self._parameters = list(network.parameters())
    self._optimizer = torch.optim.SGD(
      self._parameters, float(arrays['learning_rate'])
    )
    self._clients = [
      (x.cuda(), y.cuda()) for x, y in torch_network.clients(arrays)
    ]
    self._arrays = arrays
    self._global = [p.detach().clone() for p in self._parameters]
    self._sums = [torch.zeros_like(p) for p in self._global]

  def run(self):
    examples, loss_sum = self._arrays['y'].size, 0.0
    for x, y in self._clients:
      with torch.no_grad():
        torch._foreach_copy_(self._parameters, self._global)
      loss_sum += torch_network.train(
        self._network, self._optimizer, x, y, int(self._arrays['batch_size'])
      )
      with torch.no_grad():
        torch._foreach_add_(
          self._sums, self._parameters, alpha=len(y) / examples
        )
    torch._foreach_copy_(self._global, self._sums)
    torch._foreach_zero_(self._sums)
    torch.cuda.synchronize()
    check = lambda: torch_network.checked(
      self._arrays, loss_sum, [p.cpu() for p in self._global]
    )
    return {'check': check}


protocol.serve(lambda: Rounds(inputs.load(*sys.argv[1:])).run)
