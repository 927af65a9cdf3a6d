"""Settings of a run that are neither its task's nor its algorithm's."""

import os
from collections.abc import Mapping

from tff_xc.algorithms import hyperparameters as hp
from tff_xc.runtime import registry as runtimes

DATA_VARIABLE = 'TFF_XC_DATA'
DEFAULT_DATA_DIR = os.path.join('..', 'shared', 'data')


def _setting(name, default, text, least=0, most=hp.INT32_MAX):
  return hp.Hyperparameter(name, default, text, least=least, most=most)


# Settings of a run, of neither task nor algorithm; 0: the default of the task.
SETTINGS: Mapping[str, hp.Hyperparameter] = {
  setting.name: setting
  for setting in (
    # NumPy's generators accept only seeds below 2³².
    _setting('seed', 0, 'seed of all random draws', most=2**32 - 1),
    _setting('rounds', 0, "rounds; default: the task's", least=1),
    _setting(
      'eval_every',
      0,
      "rounds between evaluations; default: the task's",
      least=1,
    ),
    _setting(
      'checkpoint_every',
      0,
      'rounds between checkpoints, of which there is also one after about five'
      ' minutes; default: eval_every',
      least=1,
    ),
    _setting(
      'client_threads',
      0,
      'clients that train at a time; 0: one for each core',
      most=1024,
    ),
    hp.Hyperparameter(
      'runtime',
      runtimes.DEFAULT,
      'runtime of TFF computations',
      choices=runtimes.names(),
    ),
    hp.Hyperparameter(
      'device',
      '',
      "devices that train clients: 'cpu', 'gpu', or names such as 'gpu:0,gpu:1';"
      ' default: the GPUs that TensorFlow sees, else the CPU',
    ),
    _setting(
      'worker_timeout',
      runtimes.WORKER_TIMEOUT,
      'of --runtime=cluster: seconds after which a worker that has neither read nor'
      ' trained a client is given up, and its clients are trained by others',
      least=1,
    ),
    hp.Hyperparameter(
      'target',
      '',
      'scores to which a run counts its rounds, METRIC:VALUE with commas between'
      " them, such as top1:0.7,mcc:0.5; default: the task's",
    ),
    hp.Hyperparameter(
      'best_by',
      '',
      "score by which the summary's best round is chosen, such as p@1; default:"
      " the task's",
    ),
    _setting(
      'stop_after',
      0,
      'stop after this many evaluations without a better --best_by; 0: all'
      ' rounds',
    ),
    hp.Hyperparameter(
      'data_dir',
      os.environ.get(DATA_VARIABLE, DEFAULT_DATA_DIR),
      f"directory of all data sets, or one's own data; default ${DATA_VARIABLE}",
    ),
  )
}
