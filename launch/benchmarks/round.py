"""A round of LEAF's FEMNIST CNN.

Compares federated averaging of 6.6 M parameters to a plain TensorFlow loop with the same
results, to TFF's own process and to other frameworks.
"""

from launch.benchmarks import harness

_OURS = ('in_process', 'worker', 'cluster', 'bfloat16')
_TFF = ('tff_fedavg', 'tff_fedavg_worker')
_PEERS = ('pfl_torch', 'torch_side_by_side', 'torch_bfloat16')


def build(contender, sizes):
  """Builds a contender, in its own process."""
  from launch.benchmarks import rounds

  return rounds.build(contender, sizes)


def write_arrays(sizes: dict, path: str) -> None:
  """Writes the clients, as x and y, and the weights, for the peers."""
  from launch.benchmarks import rounds

  rounds.write_arrays(sizes, path)


BENCHMARK = harness.Benchmark(
  name='round',
  summary='a round of FEMNIST CNN training, 6.6 M parameters',
  sizes={
    'clients': 8,  # Clients of a round.
    'examples': 227,  # Images of each client.
    'batch_size': 64,  # Batch size of local training, one epoch.
    'embedding_dim': 2048,  # Width of the dense layer; LEAF has 2,048.
  },
  small={'clients': 2, 'examples': 20, 'batch_size': 8, 'embedding_dim': 32},
  names=('plain', 'in_process', 'worker', *_TFF),
  optional=('cluster', 'bfloat16'),
  build=build,
  ratios=(
    *((name, 'plain') for name in (*_OURS, *_TFF, *_PEERS)),
    *((name, 'in_process') for name in _OURS[1:]),
    *(('in_process', name) for name in (*_TFF, *_PEERS)),
    ('tff_fedavg_worker', 'tff_fedavg'),
    *(('bfloat16', name) for name in _PEERS),
    ('torch_bfloat16', 'torch_side_by_side'),
  ),
  same=('plain', *_OURS, *_TFF),
  # Results differ since every contender draws its own order of the examples.
  tolerances={'loss': 0.05, 'update_norm': 0.15},
  peers=_PEERS,
  write_arrays=write_arrays,
)
