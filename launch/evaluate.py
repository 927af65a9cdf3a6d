"""Evaluates the newest checkpoint of a run.

  python -m launch.evaluate --run_dir=runs/demo

Prints every metric of the run's task. Writes evaluation.json. Of examples with one
label each it also measures one client's own: those of the test where it has some
(client_test_top1), else those it trains on (client_train_top1). Their confusion
matrix is confusion.png and confusion.csv. Changes nothing else in the directory. The
data must be those of the run.
"""

from absl import flags

from launch import app
from launch import settings
from tff_xc import errors

flags.DEFINE_string('run_dir', None, 'the directory of a run')
flags.DEFINE_string(
  'data_dir', None, 'directory of the data sets; default: that of the run'
)
flags.DEFINE_string(
  'encoder',
  None,
  "a run's --encoder=MODULE:FUNCTION once more: code that a directory names is not"
  ' run',
)
settings.define_cache_flag()
flags.DEFINE_string(
  'client',
  None,
  'id of the client whose examples the confusion matrix is of; default: among the'
  ' first hundred clients, the one with the most training examples',
)


def main(arguments) -> None:
  settings.refuse_arguments(arguments)
  if not flags.FLAGS.run_dir:
    raise errors.InputError('--run_dir is missing: the directory of a run')
  settings.use_cache_dir()
  from launch import evaluation

  values = flags.FLAGS
  evaluation.run(values.run_dir, values.data_dir, values.client, values.encoder)


if __name__ == '__main__':
  app.run(main, __doc__)
