"""A round of the FEMNIST CNN with a 64-d bottleneck and a class layer of n rows.

Compares FullSoftmax, which trains all rows, to FedSS, which trains a client's
own and 1,000 sampled rows, and both to a plain TensorFlow loop and to PyTorch.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

from launch.benchmarks import femnist_round
from launch.benchmarks import spec

# The most classes of a client, so that n = 62 is FEMNIST.
_OWN_CLASSES = 62


@dataclasses.dataclass(frozen=True)
class Settings:
  """Sizes of a round.

  Attributes:
    clients: clients of a round.
    examples: images of each client, of at most 62 classes.
    batch_size: batch size of local training, one epoch.
    embedding_dim: width of the dense layer, the bottleneck.
    negatives: class rows that a client of FedSS samples; at most all others.
    num_classes: values of n.
  """

  clients: int = 8
  examples: int = 227
  batch_size: int = 64
  embedding_dim: int = 64
  negatives: int = 1000
  num_classes: tuple[int, ...] = (62, 2028, 11_318, 100_000)


def make_clients(settings: Settings, num_classes: int):
  """Returns clients with classes of their own among n, the images for any n."""
  import numpy as np

  from launch.benchmarks import arrays

  random = np.random.default_rng(0)
  own = _own_classes(num_classes)
  made = []
  for x, y in arrays.femnist_like(settings.clients, settings.examples, own):
    classes = random.choice(num_classes, own, replace=False, shuffle=False)
    made.append(arrays.Client(x, np.sort(classes)[y].astype(np.int32)))
  return made


def _own_classes(num_classes: int) -> int:
  return min(_OWN_CLASSES, num_classes)


def _negatives(settings: Settings, num_classes: int) -> int:
  return min(settings.negatives, num_classes - 1)


def make_weights(settings: Settings, num_classes: int):
  """Returns initial weights by name; the encoder's are the same for any n."""
  from launch.benchmarks import arrays

  return arrays.torch_uniform(
    femnist_round.shapes(settings.embedding_dim, num_classes)
  )


def write_arrays(settings: Settings, path: str) -> None:
  """Writes what all n share once, and for each n 'NAME@N', for the peers."""
  import numpy as np

  written = {
    'batch_size': settings.batch_size,
    'learning_rate': femnist_round.LEARNING_RATE,
  }
  for n in settings.num_classes:
    clients = make_clients(settings, n)
    written['x'] = np.stack([c.x for c in clients])
    written[f'y@{n}'] = np.stack([c.y for c in clients])
    written[f'negatives@{n}'] = _negatives(settings, n)
    for name, value in make_weights(settings, n).items():
      of_classes = name.startswith('class/')
      written[f'{name}@{n}' if of_classes else name] = value
  np.savez(path, **written)


def build(contender: str, settings: Settings) -> Any:
  """Builds a contender 'NAME@N', in its own process."""
  from launch.benchmarks import learning
  from launch.benchmarks import plain
  from tff_xc.encoders import leaf
  from tff_xc.runtime import registry

  name, size = spec.name_and_size(contender)
  n = int(size)
  encoder = leaf.build_femnist_encoder(embedding_dim=settings.embedding_dim)
  rest = (
    make_weights(settings, n),
    make_clients(settings, n),
    settings.batch_size,
    femnist_round.LEARNING_RATE,
  )
  if name == 'plain':
    return plain.PlainRounds(plain.femnist_cnn, *rest)
  registry.install('in_process')
  if name == 'fullsoftmax':
    return learning.fullsoftmax_rounds(encoder, *rest)
  return learning.fedss_rounds(
    encoder, *rest, _own_classes(n), _negatives(settings, n)
  )


_WHOLE = ('plain', 'fullsoftmax', 'pfl_torch', 'torch_side_by_side')
_SAMPLED = ('fedss', 'torch_submodel')


def _at_each_size(settings: Settings, *names: str) -> list[str]:
  return [f'{name}@{n}' for n in settings.num_classes for name in names]


def _sizes(names: Sequence[str]) -> list[str]:
  return list(dict.fromkeys(spec.name_and_size(name)[1] for name in names))


def _pairs(names: Sequence[str]) -> list[spec.Pair]:
  wanted = (
    ('fullsoftmax', 'plain'),
    ('fullsoftmax', 'pfl_torch'),
    ('fullsoftmax', 'torch_side_by_side'),
    ('fedss', 'pfl_torch'),
    ('fedss', 'torch_submodel'),
    ('fedss', 'fullsoftmax'),
  )
  return spec.pairs_of(
    names,
    *(
      (f'{above}@{n}', f'{below}@{n}')
      for n in _sizes(names)
      for above, below in wanted
    ),
  )


def _groups(names: Sequence[str]) -> list[list[str]]:
  return [
    [f'{name}@{n}' for name in group if f'{name}@{n}' in names]
    for n in _sizes(names)
    for group in (_WHOLE, _SAMPLED)
  ]


BENCHMARK = spec.Benchmark(
  name='bottleneck',
  summary='the CNN with 64-d embeddings, class layers of 62 to 100,000 rows',
  settings=Settings,
  small={
    'clients': 2,
    'examples': 20,
    'batch_size': 20,  # One step, so the order of the examples is no matter.
    'embedding_dim': 32,
    'negatives': 100,
    'num_classes': (62, 400),
  },
  contenders=lambda settings: _at_each_size(
    settings, 'plain', 'fullsoftmax', 'fedss'
  ),
  pairs=_pairs,
  groups=_groups,
  # Every contender draws its own order of the examples and its own negatives.
  # The loss hardly falls in one round; the short way differs by a tenth.
  tolerances={'loss': 0.01, 'update_norm': 0.25},
  build=build,
  peers=lambda settings: _at_each_size(
    settings, 'pfl_torch', 'torch_side_by_side', 'torch_submodel'
  ),
  write_arrays=write_arrays,
)
