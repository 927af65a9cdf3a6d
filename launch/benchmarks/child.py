"""The process of a contender of this package; `launch.benchmark` starts it.

python -m launch.benchmarks.child BENCHMARK CONTENDER SETTINGS_AS_JSON
"""

import json
import os
import sys

import tff_xc
from launch.benchmarks import catalog
from launch.benchmarks.peers import protocol
from tff_xc import lazy_imports


def main(benchmark: str, contender: str, settings: str) -> None:
  """Builds the contender and serves its rounds."""
  found = catalog.get(benchmark)
  values = {
    name: tuple(value) if isinstance(value, list) else value
    for name, value in json.loads(settings).items()
  }
  if contender.startswith('plain') and tff_xc.ONEDNN_GIVEN is None:
    del os.environ[tff_xc.ONEDNN]  # Plain TensorFlow, as it comes.
  lazy_imports.install()
  protocol.serve(lambda: found.build(contender, found.settings(**values)))


if __name__ == '__main__':
  main(*sys.argv[1:])
