"""The process of a contender of this package; `launch.benchmark` starts it.

python -m launch.benchmarks.child BENCHMARK CONTENDER SETTINGS_AS_JSON
"""

import json
import sys

from launch.benchmarks import catalog
from launch.benchmarks.peers import protocol


def main(benchmark: str, contender: str, settings: str) -> None:
  """Builds the contender and serves its rounds."""
  found = catalog.get(benchmark)
  values = {
    name: tuple(value) if isinstance(value, list) else value
    for name, value in json.loads(settings).items()
  }
  protocol.serve(lambda: found.build(contender, found.settings(**values)))


if __name__ == '__main__':
  main(*sys.argv[1:])
