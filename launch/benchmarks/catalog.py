"""The benchmarks by name. Importing this does not import TensorFlow."""

from launch.benchmarks import bottleneck
from launch.benchmarks import class_count
from launch.benchmarks import cold_start
from launch.benchmarks import exact_ranking
from launch.benchmarks import femnist_round
from launch.benchmarks import hashed_networks
from launch.benchmarks import label_scores
from launch.benchmarks import lstm_step
from launch.benchmarks import mobilenet_step
from launch.benchmarks import paper_sizes
from launch.benchmarks import retrieval
from launch.benchmarks import row_select
from launch.benchmarks import small_clients
from launch.benchmarks import spec
from launch.benchmarks import spreadout_step
from launch.benchmarks import svm_step
from tff_xc import errors
from tff_xc import wording

BENCHMARKS: dict[str, spec.Benchmark] = {
  module.BENCHMARK.name: module.BENCHMARK
  for module in (
    femnist_round,
    bottleneck,
    class_count,
    row_select,
    small_clients,
    spreadout_step,
    svm_step,
    exact_ranking,
    retrieval,
    label_scores,
    hashed_networks,
    lstm_step,
    mobilenet_step,
    paper_sizes,
    cold_start,
  )
}


def get(name: str) -> spec.Benchmark:
  """Returns a benchmark.

  Raises:
    errors.InputError: there is no benchmark of that name.
  """
  if name not in BENCHMARKS:
    raise errors.InputError(
      f'unknown benchmark {name!r}{wording.meant(name, BENCHMARKS)}; the'
      f' benchmarks are {", ".join(BENCHMARKS)}'
    )
  return BENCHMARKS[name]
