"""Evaluates the newest checkpoint of a run.

  python -m launch.evaluate --run_dir=runs/demo

Prints every metric of the run's task. Writes evaluation.json. Of examples with one
label each it also measures one client's own: those of the test where it has some
(client_test_top1), else those it trains on (client_train_top1). Their confusion
matrix is confusion.png and confusion.csv. Changes nothing else in the directory. The
data must be those of the run.

  python -m launch.evaluate --run_dir=runs/demo --per_client
  python -m launch.evaluate --run_dir=runs/demo --personalize=5

adds the scores of every client on its own held-out examples, as a table, clients.csv and
clients.png: of the global model, and of each client's own, which is forgotten. Train with
--client_test_fraction, unless the data say whose the test examples are. In a run whose
clients keep heads (fedrep), these are scored, too, and clients that have one start from it.

  python -m launch.evaluate --run_dir=runs/demo --calibrate=100

measures the model whose class rows are trained once more, on 100 virtual features of each
class, drawn from what clients tell of their embeddings (CCVR). The run stays as it is.
"""

from absl import flags

from launch import app
from launch import settings
from tff_xc import errors
from tff_xc.algorithms import hyperparameters as hp

flags.DEFINE_string('run_dir', None, 'the directory of a run')
settings.define_named_flags(
  data_dir='where the data of the run are now; default: where they were',
  split='where the file or folder of its split is',
  test_file='where the file of its test examples is',
  classes='where the file of its class names is',
  encoder='the network, if it is MODULE:FUNCTION',
)
settings.define_cache_flag()
settings.define_picture_flag()
flags.DEFINE_string(
  'client',
  None,
  'id of the client whose examples the confusion matrix is of; default: among the'
  ' first hundred clients, the one with the most training examples',
)
flags.DEFINE_bool(
  'per_client', False, 'the scores of every client on its own held-out examples'
)
flags.DEFINE_integer(
  'personalize',
  None,
  'the same also after so many local steps of each client from the global model, with'
  " the run's client optimizer, batches and loss; it is then forgotten",
  lower_bound=0,
  upper_bound=hp.INT32_MAX,
)
flags.DEFINE_enum(
  'personalize_part',
  None,
  ['all', 'head', 'rows'],
  'what the steps move: all that clients train; head: the class rows that a client'
  ' holds, all or those that its algorithm requests; rows: those of its own classes.'
  ' Default: all',
)
flags.DEFINE_float(
  'personalize_learning_rate',
  None,
  "rate of the steps; default: the run's --client_learning_rate",
  lower_bound=0,
)
settings.define_calibration_flags()
_OF_PERSONALIZE = ('personalize_part', 'personalize_learning_rate')


def _personalization(values):
  """Returns the `Personalization` that flags ask for, or None."""
  if values.personalize is None:
    return None
  from tff_xc.experiment import personalization

  of_it = values.personalize_part, values.personalize_learning_rate
  return personalization.Personalization(
    values.personalize, of_it[0] or 'all', of_it[1]
  )


def main(arguments) -> None:
  settings.refuse_arguments(arguments)
  if not flags.FLAGS.run_dir:
    raise errors.InputError('--run_dir is missing: the directory of a run')
  values = flags.FLAGS
  settings.check_of('personalize', _OF_PERSONALIZE)
  calibrate = settings.calibration()
  settings.use_cache_dir()
  settings.use_picture_format()
  from launch import evaluation

  how = _personalization(values)
  per_client = values.per_client or how is not None
  evaluation.run(
    *(values.run_dir, values.client, settings.named()),
    *(per_client, how, calibrate),
  )


if __name__ == '__main__':
  app.run(main, __doc__)
