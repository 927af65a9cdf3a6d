"""The exception for input that the user can correct, and a common check.

The commands in `launch/` print the exception's message and exit with status 2. This
module imports nothing, so that every other module can import it.
"""


class InputError(Exception):
  """A flag, a file, a record or a run directory is wrong.

  The message is one clear sentence for a person at a terminal. The sentence names the
  file (and the line or record), what was expected, and what to do.
  """


class DamageError(InputError):
  """A file that this program wrote is damaged, or a file cannot be written."""


class DivergedError(InputError):
  """Training stopped because its numbers were no longer finite."""


def check_labels(labels, num_classes: int, where: str) -> None:
  """Raises InputError if a label is outside [0, num_classes); the message names `where`."""
  bad = labels[(labels < 0) | (labels >= num_classes)]
  if bad.size:
    raise InputError(
      f'{where}: label {bad[0]} is outside [0, {num_classes}) '
      f'({bad.size} of {labels.size} labels are); '
      'mend the data, or check the number of classes'
    )
