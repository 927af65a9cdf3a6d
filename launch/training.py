"""Trains a run and prints its results. Imports TensorFlow."""

import pathlib
from collections.abc import Mapping
from typing import Any

from tasks import experiment
from tff_xc.experiment import run_directory
from tff_xc.report import run_files
from tff_xc.report import tables
from tff_xc.report import text_table


def run(config: Mapping[str, Any], run_dir: str) -> dict[str, Any]:
  """Trains as configured, in `run_dir`; prints and returns the summary."""
  summary = experiment.run(config, run_dir)
  finished = run_files.read_run(run_dir)
  table = tables.build(tables.collect([finished]))
  width = text_table.terminal_width()
  print(tables.to_text(table, width, elsewhere='summary.json'))
  print(f'curves: {pathlib.Path(run_dir) / run_directory.CURVES}')
  return summary
