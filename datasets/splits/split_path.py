"""Parses the path of a split file, which is a value of `--split` and `--inspect`:

  FILE             a table user_id,image_id,class
  FILE:COLUMN      a table with the users in COLUMN instead of user_id, such as TFF's
                   iNaturalist_train.csv:geo_100
  FOLDER, X.zip    a folder or zip with federated_train.csv and optionally test.csv
  X.zip/FILE       a table in a zip

The module imports nothing large, so that commands start fast.
"""

import os
import pathlib
from typing import NamedTuple

from datasets.readers import zipped

TRAIN = 'federated_train.csv'
USER = 'user_id'
# The advice in the error for a table that lacks the columns of a split.
OTHER_COLUMNS = (
  'name another column of users after a colon, as FILE.csv:COLUMN, or let'
  ' `python -m launch.make_splits users` make the split of your columns'
)


class SplitPath(NamedTuple):
  """The path of a split, and its column of users."""

  path: pathlib.Path  # The file, folder or zip.
  user: str = USER

  @property
  def is_folder(self) -> bool:
    """Whether the path is a folder or zip of files."""
    return self.path.is_dir() or zipped.is_zip(self.path)

  @property
  def train(self) -> pathlib.Path:
    """The file of the training examples."""
    return self.path / TRAIN if self.is_folder else self.path

  def exists(self) -> bool:
    """Whether the path exists; raises InputError if the path is in a damaged zip."""
    return self.path.is_dir() or zipped.is_file(self.path)


def parse(text: str | os.PathLike) -> SplitPath:
  """Parses the path of a split. The file or folder may be missing."""
  whole = SplitPath(pathlib.Path(text))
  file, colon, user = os.fspath(text).rpartition(':')
  if not colon or not user or whole.exists():
    return whole
  return SplitPath(pathlib.Path(file), user)
