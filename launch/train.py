"""Trains a federated classifier, and writes its checkpoints, scores and curves.

  python -m launch.train --task=glyphs-demo --algorithm=fedss --run_dir=runs/demo

If a run stops, the same command with the same --run_dir resumes it. `--help` lists the flags
that most runs need. With --task and --algorithm, `--help` lists the flags that apply to them,
with the values that the run would use. --help=all lists all flags.
"""

import os
import pathlib
from collections.abc import Mapping
from typing import Any

from absl import flags

from launch import app, settings
from tasks import configuration, experiment
from tff_xc.report import run_files, tables, text_table

flags.DEFINE_string(
  'run_dir', None, 'directory to write the run to; default: runs/TASK_ALGORITHM_seedS'
)
settings.define_experiment_flags()
settings.define_picture_flag()


def run(config: Mapping[str, Any], run_dir: str) -> dict[str, Any]:
  """Trains a configuration in `run_dir`; prints and returns the summary."""
  summary = experiment.run(config, run_dir)
  from tff_xc.experiment import run_directory

  table = tables.build(tables.collect([run_files.read_run(run_dir)]))
  width = text_table.terminal_width()
  print(tables.to_text(table, width, elsewhere='summary.json'))
  print(f'curves: {pathlib.Path(run_dir) / run_directory.CURVES}')
  return summary


def main(arguments) -> None:
  config = configuration.resolve(*settings.given())
  values = flags.FLAGS
  run_dir = values.run_dir or os.path.join(
    'runs', f'{config["task"]}_{config["algorithm"]}_seed{config["seed"]}'
  )
  print(f'run directory: {run_dir}; loading TensorFlow ...', flush=True)
  run(config, run_dir)


if __name__ == '__main__':
  app.run(main, __doc__, settings.narrow_help, takes_arguments=False)
