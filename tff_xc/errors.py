"""The exception for input that the user can correct.

The commands in `launch/` turn it into one sentence and exit status 2. This
module imports nothing, so that every other module can import it.
"""


class InputError(Exception):
  """Bad input: a flag, a file, a record or a run directory.

  The message is one clear sentence for a person at a terminal. It names the
  file (and line or record), what was expected, and what to do.
  """
