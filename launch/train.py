"""Trains a federated classifier and writes everything about the run.

  python -m launch.train --task=glyphs --algorithm=fedss --run_dir=runs/demo

The same command with the same --run_dir resumes a run that stopped.
"""

import os

from absl import flags

from launch import app
from launch import settings
from tasks import registry as tasks
from tff_xc.algorithms import hyperparameters as hp
from tff_xc.algorithms import registry as algorithms
from tff_xc.runtime import registry as runtimes


def _names(kind, entries) -> str:
  names = ', '.join(entries)
  return f'{names}; `python -m launch.list {kind}` describes them'


def _define_integer(name, default, text, least=0, most=hp.INT32_MAX):
  flags.DEFINE_integer(name, default, text, lower_bound=least, upper_bound=most)


flags.DEFINE_string('task', None, _names('tasks', tasks.TASKS))
flags.DEFINE_string(
  'algorithm', None, _names('algorithms', algorithms.ALGORITHMS)
)
flags.DEFINE_string(
  'run_dir',
  None,
  'directory of the run; default runs/TASK_ALGORITHM_seedS',
)
flags.DEFINE_string(
  'data_dir',
  os.environ.get('TFF_XC_DATA', settings.DEFAULT_DATA_DIR),
  'directory of the data sets, one folder each; default $TFF_XC_DATA',
)
settings.define_cache_flag()
_define_integer('rounds', None, "rounds; default: the task's", least=1)
_define_integer(
  'clients_per_round',
  None,
  "K, clients in a round; default: the task's",
  least=1,
)
# NumPy's generators accept only seeds below 2³².
_define_integer('seed', 0, 'seed of all random draws', most=2**32 - 1)
_define_integer(
  'eval_every', None, "rounds between evaluations; default: the task's", least=1
)
_define_integer(
  'checkpoint_every',
  None,
  'rounds between checkpoints; default: eval_every',
  least=1,
)
flags.DEFINE_enum(
  'runtime',
  runtimes.DEFAULT,
  runtimes.names(),
  'runtime of TFF computations',
)
_define_integer(
  'client_threads',
  0,
  'clients that train at a time; 0: one for each core',
  most=1024,
)
flags.DEFINE_string(
  'device',
  '',
  "devices that train clients: 'cpu', 'gpu', or names such as 'gpu:0,gpu:1';"
  ' default: the GPUs that TensorFlow sees, else the CPU',
)
settings.define_parameter_flags()


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
