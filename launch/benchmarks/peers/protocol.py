"""The contender's side of a benchmark, for any Python from 3.8.

This module needs nothing except NumPy, so that a program in another virtual environment can
import it from this folder. A contender runs a round for each line on stdin, and answers with
JSON lines on stdout. Prints of libraries go to stderr.

  {}                                                  once, when it is built
  {"seconds": 1.2, "check": {...}, "parts": {...}}    after each round
  {"error": "..."}                                    then the process ends
"""

import ctypes
import json
import os
import signal
import sys
import time
import traceback

# The environment variable that has the `time.monotonic` of a contender's start.
STARTED = 'BENCHMARK_STARTED'
_PR_SET_PDEATHSIG = 1  # <sys/prctl.h>


def serve(build):
  """Builds a contender, and runs a round for each line on stdin until stdin ends.

  `build` returns a function that runs a round, which is timed. This function returns a
  dictionary with optional entries:
    check: a function that returns the numbers by name that contenders must agree on. It is
      called after the first round, and is not timed.
    parts: seconds by name.
    seconds: replaces the measured time of the call.
  """
  # The kernel ends this process when its parent ends.
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
      del found, check  # These may keep the results of the round in memory.
      print(json.dumps(answer), file=replies)
  except Exception as error:
    traceback.print_exc()
    text = type(error).__name__ + ': ' + str(error).strip()
    print(json.dumps({'error': text}), file=replies)
    sys.exit(1)


def distance(after, before):
  """Returns the L2 norm of the difference of two lists of arrays.

  The sum is computed row by row, because a contender's peak memory is measured.
  """
  total = 0.0
  for a, b in zip(after, before):  # noqa: B905 old Pythons
    for row, other in zip(a, b):  # noqa: B905
      total += float(((row - other) ** 2).sum())
  return total**0.5
