"""The Shakespeare network in plain PyTorch, as a contender.

Runs under an interpreter that has torch: torch_lstm.py ARRAYS.npz. One thread.
"""

import sys

import inputs
import numpy as np
import protocol
import torch

_LSTM = {
  'kernel': 'weight_ih_l',
  'recurrent': 'weight_hh_l',
  'bias': 'bias_ih_l',
  'recurrent_bias': 'bias_hh_l',
}


class Network(torch.nn.Module):
  """An embedding of characters, two LSTM layers and a class layer."""

  def __init__(self, arrays):
    super().__init__()
    hidden, classes = arrays['class/kernel'].shape
    characters = arrays['characters'].shape
    self.characters = torch.nn.Embedding(*characters)
    self.lstm = torch.nn.LSTM(characters[1], hidden, 2)
    self.head = torch.nn.Linear(hidden, classes)

  def forward(self, x):
    states, _ = self.lstm(self.characters(x.T))
    return self.head(states[-1])


def weights(arrays):
  """Returns the weights in PyTorch's layouts, by PyTorch's names."""
  named = {
    'lstm.%s%d' % (theirs, i): arrays['lstm%d/%s' % (i, ours)]  # noqa: UP031
    for i in range(2)
    for ours, theirs in _LSTM.items()
  }
  named['characters.weight'] = arrays['characters']
  named['head.weight'] = np.ascontiguousarray(arrays['class/kernel'].T)
  named['head.bias'] = arrays['class/bias']
  return named


class Steps:
  """A contender of `protocol`: steps of SGD on one client, in order."""

  def __init__(self, arrays):
    torch.set_num_threads(1)
    self._network = Network(arrays)
    self._before = weights(arrays)
    # This fails if the network has other parameters than were given.
    self._network.load_state_dict(
      {name: torch.from_numpy(w) for name, w in self._before.items()}
    )
    rate = float(arrays['learning_rate'])
    self._optimizer = torch.optim.SGD(self._network.parameters(), rate)
    size = int(arrays['batch_size'])
    self._x = torch.from_numpy(arrays['x'][0].astype(np.int64)).split(size)
    self._y = torch.from_numpy(arrays['y'][0].astype(np.int64)).split(size)
    self._report = {}

  def run(self):
    losses = []
    for x, y in zip(self._x, self._y):  # noqa: B905 old Pythons
      self._optimizer.zero_grad()
      loss = torch.nn.functional.cross_entropy(self._network(x), y)
      loss.backward()
      self._optimizer.step()
      losses.append(loss.item())
    self._loss = float(np.mean(losses))

  def report(self):
    if not self._report:
      now = dict(self._network.named_parameters())
      names = list(self._before)
      norm = inputs.distance(
        [now[name].detach().numpy() for name in names],
        [self._before[name] for name in names],
      )
      self._report = {'check': {'loss': self._loss, 'update_norm': norm}}
    return self._report


protocol.serve(lambda: Steps(inputs.load(*sys.argv[1:])))
