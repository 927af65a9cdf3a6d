"""Runs a contender of this package, in the process that `launch.benchmark` starts for it.

python -m launch.benchmarks BENCHMARK CONTENDER SIZES_AS_JSON
"""

import importlib
import json
import os
import sys
import types

import tff_xc
from launch.benchmarks.peers import protocol
from tff_xc import lean_tensorflow

if __name__ == '__main__':
  name, contender, words = sys.argv[1:]
  if contender == 'plain' and tff_xc.ONEDNN_GIVEN is None:
    del os.environ[tff_xc.ONEDNN]  # The contender runs TensorFlow with its defaults.
  lean_tensorflow.install()
  found = importlib.import_module(f'launch.benchmarks.{name}')
  sizes = types.SimpleNamespace(**json.loads(words))
  protocol.serve(lambda: found.build(contender, sizes))
