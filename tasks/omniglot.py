"""Omniglot: 964 characters, 480 drawers, and 659 unseen characters.

Not an experiment of the papers, but one with real clients that fits any
machine: from scratch, where the papers start from pretrained encoders. Server
SGD with momentum does not move within hundreds of rounds; Adam does.
"""

from tasks import task


def _load(data_dir, options):
  from datasets import omniglot

  return task.with_small_encoder(omniglot.load(data_dir), options)


def _find(data_dir):
  from datasets import omniglot_files

  return omniglot_files.find(data_dir)


TASKS = (
  task.Task(
    name='omniglot',
    summary='964 handwritten characters, 480 real drawers as clients',
    load=_load,
    metrics=('top1', 'map@10', 'map@r', 'train_top1'),
    rounds=1000,
    clients_per_round=32,
    eval_every=50,
    defaults=task.FROM_SCRATCH,
    num_classes=964,
    # As many examples as a federated round sees, 32 clients of 32 on average.
    by_algorithm={'centralized': {'steps_per_round': 32}},
    find=_find,
    data='omniglot: omniglot_1623.npz, or images_background and'
    ' images_evaluation as folders or zips',
  ),
)
