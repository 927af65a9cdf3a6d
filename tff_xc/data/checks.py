"""Checks of data that every training loop makes, for every data set."""

import numpy as np

from tff_xc import errors


def check_labels(labels: np.ndarray, num_classes: int, where: str) -> None:
  """Raises InputError unless all labels lie in [0, num_classes).

  Args:
    labels: integers [k].
    num_classes: n.
    where: whose labels they are, for the error: `client Greek/07`.
  """
  labels = np.asarray(labels)
  bad = labels[(labels < 0) | (labels >= num_classes)]
  if bad.size:
    raise errors.InputError(
      f'{where}: label {bad[0]} is outside [0, {num_classes}) '
      f'({bad.size} of {labels.size} labels are); '
      'mend the data, or check the number of classes'
    )
