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

if __name__ == '__main__':
  found, contender = catalog.get(sys.argv[1]), sys.argv[2]
  values = {
    name: tuple(value) if isinstance(value, list) else value
    for name, value in json.loads(sys.argv[3]).items()
  }
  if contender.startswith('plain') and tff_xc.ONEDNN_GIVEN is None:
    del os.environ[tff_xc.ONEDNN]  # Plain TensorFlow, as it comes.
  lazy_imports.install()
  protocol.serve(lambda: found.build(contender, found.settings(**values)))
