"""The benchmarks by name. Importing this does not import TensorFlow."""

from launch.benchmarks import classes
from launch.benchmarks import growth
from launch.benchmarks import paper_sizes
from launch.benchmarks import rank
from launch.benchmarks import round as round_lib
from launch.benchmarks import select
from launch.benchmarks import small
from launch.benchmarks import spec
from launch.benchmarks import spreadout
from launch.benchmarks import start
from launch.benchmarks import svm
from tff_xc import errors
from tff_xc import wording

BENCHMARKS: dict[str, spec.Benchmark] = {
  benchmark.name: benchmark
  for benchmark in (
    round_lib.ROUND,
    round_lib.BOTTLENECK,
    classes.BENCHMARK,
    select.BENCHMARK,
    small.BENCHMARK,
    spreadout.BENCHMARK,
    svm.BENCHMARK,
    rank.BENCHMARK,
    paper_sizes.BENCHMARK,
    growth.BENCHMARK,
    start.BENCHMARK,
  )
}


def get(name: str) -> spec.Benchmark:
  """Returns a benchmark; an `InputError` lists them if there is none."""
  if name not in BENCHMARKS:
    raise errors.InputError(
      f'unknown benchmark {name!r}{wording.meant(name, BENCHMARKS)}; the'
      f' benchmarks are {", ".join(BENCHMARKS)}'
    )
  return BENCHMARKS[name]
