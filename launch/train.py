"""Trains a federated classifier and writes everything about the run.

  python -m launch.train --task=glyphs --algorithm=fedss --run_dir=runs/demo

The same command with the same --run_dir resumes a run that stopped.
"""

import os

from absl import flags

from launch import app
from launch import settings

flags.DEFINE_string(
  'run_dir',
  None,
  'directory of the run; default runs/TASK_ALGORITHM_seedS',
)
settings.define_experiment_flags()


def main(arguments) -> None:
  settings.refuse_arguments(arguments)
  config = settings.resolve()
  settings.use_cache_dir()
  values = flags.FLAGS
  run_dir = values.run_dir or os.path.join(
    'runs', f'{config["task"]}_{config["algorithm"]}_seed{config["seed"]}'
  )
  print(f'run directory: {run_dir}; loading TensorFlow ...', flush=True)
  from launch import training

  training.run(config, run_dir)


if __name__ == '__main__':
  app.run(main, __doc__)
