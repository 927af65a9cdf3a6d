"""Keeps a measured table as a CSV, which `launch.document` shows."""

import csv
import os
from collections.abc import Sequence
from typing import Any


def write(path: str | os.PathLike, rows: Sequence[Sequence[Any]]) -> None:
  """Writes rows of cells; the first is the heading."""
  with open(path, 'w', newline='', encoding='utf-8') as file:
    csv.writer(file, lineterminator='\n').writerows(rows)
