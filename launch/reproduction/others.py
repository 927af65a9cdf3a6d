"""Refuses to overwrite what this program has not written."""

import pathlib
from collections.abc import Iterable

from launch.reproduction import outcome as outcome_lib
from launch.reproduction import page
from tff_xc import errors

# Stands in every page, in the commands of its results.
_OWN = b'launch.reproduce'


def refuse(output: pathlib.Path, names: Iterable[str]) -> None:
  """Looks at the files that results of these names will replace.

  Raises:
    errors.InputError: one is there and nothing of this program, or cannot be read.
  """
  report = output / page.FILE
  try:
    found = (
      [report] if report.is_file() and _OWN not in report.read_bytes() else []
    )
    for name in names:
      folder = outcome_lib.folder(output, name)
      text, result = folder / outcome_lib.TEXT, folder / outcome_lib.FILE
      if text.exists() and not result.exists():
        found.append(text)
  except OSError as e:
    raise errors.InputError(
      f'{e.filename} cannot be read ({e.strerror}); name another --output'
    ) from e
  if found:
    raise errors.InputError(
      f'{found[0]} was not written by this program and is not overwritten; name'
      ' another --output'
    )
