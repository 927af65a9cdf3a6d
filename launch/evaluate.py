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
from tasks import experiment
from tff_xc import errors

flags.DEFINE_string('run_dir', None, 'the directory of a run')
for _name, _what in (
  ('data_dir', 'the data of the run, where they are now'),
  ('split', 'the split, if it is a file or a folder'),
  ('test_file', 'the test examples, if they are a file'),
  ('encoder', 'the network, if it is MODULE:FUNCTION'),
):
  flags.DEFINE_string(
    _name,
    None,
    f'{_what}: named once more, since what only the run directory of somebody else'
    ' names is neither read nor run',
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
  given = {name: values[name].value for name in experiment.NAMED}
  named = {name: value for name, value in given.items() if value is not None}
  evaluation.run(values.run_dir, values.client, named)


if __name__ == '__main__':
  app.run(main, __doc__)
