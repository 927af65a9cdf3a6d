"""The one exception for input that a person can mend.

It lives at the bottom of the import order, imports nothing, and is what the
commands in `launch/` turn into one sentence and exit status 2.
"""


class InputError(Exception):
  """Bad input: a flag, a file, a record or a run directory.

  The message is one clear sentence for a person at a terminal. It names the
  file (and line or record), what was expected, and what to do.
  """
