"""The contender's side of a benchmark, for any Python from 3.8.

This module needs only NumPy, so that a program in another virtual environment can import it
from this folder. A contender runs a round for each line on stdin, and answers with a line of
JSON on stdout. Prints of libraries go to stderr.

  {}                                                  when the contender is built
  {"seconds": 1.2, "check": {...}, "parts": {...}}    after each round
  {"error": "..."}                                    after an error; then the process ends
"""

import ctypes
import json
import os
import signal
import sys
import time
import traceback

# The environment variable with the `time.monotonic` at which the contender was started.
STARTED = 'BENCHMARK_STARTED'
_PR_SET_PDEATHSIG = 1  # <sys/prctl.h>


def serve(build):
  """Builds a contender, and runs a round for each line on stdin until stdin ends.

  `build` returns a function that runs a round. `serve` measures the time of this function. The
  function returns a dictionary with these optional entries:
    check: a function that returns numbers by name, on which contenders must agree. `serve`
      calls `check` after the first round, outside of the measured time.
    parts: seconds by name.
    seconds: replaces the measured time of the round.
  """
  # The kernel kills this process when the parent process ends.
  ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
  replies = os.fdopen(os.dup(1), 'w', buffering=1)
  os.dup2(2, 1)
  try:
    run, checked = build(), None
    print('{}', file=replies)
    for _ in sys.stdin:
      started = time.perf_counter()
      found = run()
      answer = dict({'seconds': time.perf_counter() - started}, **found)
      check = answer.pop('check', dict)
      checked = answer['check'] = check() if checked is None else {}
      del found, check  # Both may keep the results of the round in memory.
      print(json.dumps(answer), file=replies)
  except Exception as error:
    traceback.print_exc()
    text = type(error).__name__ + ': ' + str(error).strip()
    print(json.dumps({'error': text}), file=replies)
    sys.exit(1)


def distance(after, before):
  """Returns the L2 norm of the difference of two lists of arrays.

  The sum is computed row by row, to add little to the contender's peak memory.
  """
  total = 0.0
  for a, b in zip(after, before):  # noqa: B905 old Pythons
    for row, other in zip(a, b):  # noqa: B905
      total += float(((row - other) ** 2).sum())
  return total**0.5
