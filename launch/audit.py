"""Plays a curious server: what requests and updates tell of clients' classes.

  python -m launch.audit --run_dir=runs/a,runs/b --output=audits/omniglot
  python -m launch.audit --task=glyphs --algorithm=fedss --negatives=20

Either of trained runs of one task, or of a task and an algorithm as launch.train takes
them, with initial weights. Prints tables and writes requests.csv, audit.csv,
updates.csv and audit.png.

Requests: the server knows the algorithm and its settings, and not the clients'
randomness (a simulation's server knows that too, see --request_randomness). By Bayes'
rule it has a posterior that a class is the client's own, after each of some requests;
for every --negatives_schedule, also those of which there is no run. AUC is the area
under the ROC curve of this posterior over all classes; a class is known if it is above
1/2. A client takes part every N / K rounds, of N clients and K in a round.

Updates: the AUC by which the change of a class row tells own classes from others among
the rows that a client sends, and in sums over the clients that are looked at: by its
size, and by its direction against the other rows. Updates are as clients train them,
before what --dp, --compression, --message_precision, --secure_sums, bounds or an
--attack do to them.
Membership: the AUC of the loss of training against test examples.
"""

from absl import flags

from launch import app
from launch import settings
from tasks import experiment
from tff_xc import errors
from tff_xc.algorithms import registry as algorithms

flags.DEFINE_list(
  'run_dir', [], 'directories of runs, with commas between them'
)
flags.DEFINE_string(
  'output',
  None,
  "directory of the results; default: the first run's, or audits",
)
flags.DEFINE_integer(
  'audit_clients', 50, 'clients that are audited, drawn by the seed', 1, 10_000
)
flags.DEFINE_integer(
  'audit_requests', 20, 'requests of each client that the server sees', 1, 1000
)
flags.DEFINE_integer(
  'audit_seeds',
  1,
  'seeds of the audited requests, from that of the run on',
  1,
  100,
)
flags.DEFINE_float(
  'update_clip', None, 'also clip updates to this L2 norm', 1e-30, 1e30
)
flags.DEFINE_float(
  'update_noise',
  None,
  'also add Gaussian noise to each number of a clipped update, this many times'
  ' --update_clip, as a client would do by itself',
  0,
  1e6,
)
settings.define_experiment_flags()
# What schedules need of which there is no run.
_OF_SCHEDULES = ('negatives_renewed', 'request_epsilon')


def main(arguments) -> None:
  settings.refuse_arguments(arguments)
  values, config = flags.FLAGS, None
  changes = settings.changes()
  known = settings.parameters()
  of_schedules = {
    n: known[n].checked(changes[n]) for n in _OF_SCHEDULES if n in changes
  }
  if values.update_noise and values.update_clip is None:
    raise errors.InputError(
      '--update_noise is a multiple of --update_clip; give that, too'
    )
  if values.run_dir:
    taken = {'encoder', *experiment.DATA_FILES, *_OF_SCHEDULES}
    given = [n for n in ('task', 'algorithm') if values[n].value is not None]
    if wrong := [*given, *(n for n in changes if n not in taken)]:
      raise errors.InputError(
        f'--{wrong[0]} is that of the runs in --run_dir; leave one of both out'
      )
  else:
    task, algorithm, changes = settings.given()
    # All schedules are audited, also those to which only these apply.
    applies = {'partial': _OF_SCHEDULES[:1], 'randomized': _OF_SCHEDULES}
    kept = applies.get(changes.get('negatives_schedule'), ())
    taken = algorithms.get(algorithm).names
    left = {n for n in _OF_SCHEDULES if n in taken and n not in kept}
    changes = {n: v for n, v in changes.items() if n not in left}
    config = experiment.resolve(task, algorithm, changes)
  settings.use_cache_dir()
  from launch import auditing

  auditing.run(
    [*values.run_dir],
    config,
    settings.named(),
    values.output,
    auditing.Settings(
      values.audit_clients,
      values.audit_requests,
      values.update_clip,
      values.update_noise,
      seeds=values.audit_seeds,
      **of_schedules,
    ),
  )


if __name__ == '__main__':
  app.run(main, __doc__, settings.narrow_help)
