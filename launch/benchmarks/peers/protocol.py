"""A contender's side of the protocol, for any Python 3.8 or later.

It imports the standard library only, so that a program in another virtual
environment can import it from this folder. It runs a round for each line on
stdin. It writes answers as JSON lines to the file descriptor named in the
environment, so that prints of libraries cannot damage them:

  {"ready": true}                                 once, when it is built
  {"seconds": 1.2, "check": {...}, "parts": {...}}  after each round
  {"error": "...", "input": false}                then the process ends
"""

import ctypes
import gc
import json
import os
import signal
import sys
import time
import traceback

FD_VARIABLE = 'BENCHMARK_REPLY_FD'
PARENT_VARIABLE = 'BENCHMARK_PARENT'
_PR_SET_PDEATHSIG = 1  # <sys/prctl.h>


def die_with_parent(parent):
  """Makes the kernel end this process when its parent, a process id, ends."""
  ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
  if os.getppid() != parent:
    os._exit(1)  # The parent ended before the call.


def serve(build):
  """Builds a contender and runs its rounds as commanded, until stdin ends.

  `build` returns a function that runs a round, and is timed. It returns a
  dictionary that may have `check` (numbers by name that contenders must agree on,
  or a function that returns them; of the first round only, and not timed), `parts`
  (seconds by name), and `seconds`, in place of the time of the call.
  """
  die_with_parent(int(os.environ[PARENT_VARIABLE]))
  fd = int(os.environ[FD_VARIABLE])
  os.set_inheritable(fd, False)
  replies = os.fdopen(fd, 'w')

  def reply(message):
    replies.write(json.dumps(message) + '\n')
    replies.flush()

  try:
    run, is_first = build(), True
    gc.collect()
    reply({'ready': True})
    for _ in sys.stdin:
      started = time.perf_counter()
      found = run()
      answer = dict({'seconds': time.perf_counter() - started}, **found)
      check = answer.pop('check', {})
      if is_first:
        answer['check'] = check() if callable(check) else check
      is_first = False
      del found, check  # They may hold the round's results.
      reply(answer)
  except Exception as error:
    traceback.print_exc()
    is_input = type(error).__name__ == 'InputError'
    text = str(error).strip()
    if not is_input:
      text = type(error).__name__ + ': ' + text.split('\n')[0]
    reply({'error': text, 'input': is_input})
    sys.exit(1)
