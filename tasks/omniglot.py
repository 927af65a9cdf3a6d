"""Omniglot: 964 characters, 480 drawers, and 659 unseen characters.

This is no experiment of the papers. It has real clients and fits any machine.
It trains from scratch, whereas the papers start from pretrained encoders. With a
client rate of 0.1, SGD and momentum on the server do not move the model within
hundreds of rounds; Adam does.
"""

from tasks import task


def _load(data_dir, options):
  from datasets import omniglot

  return task.with_encoder(omniglot.load(data_dir), options)


def _find(data_dir):
  from datasets import omniglot

  return omniglot.find(data_dir)


TASKS = (
  task.Task(
    name='omniglot',
    summary='964 handwritten characters, 480 real drawers as clients',
    load=_load,
    metrics=('top1', 'macro_f1', 'mcc', 'map@10', 'map@r', 'train_top1'),
    rounds=1000,
    clients_per_round=32,
    eval_every=50,
    targets=('top1:0.5',),
    defaults=task.FROM_SCRATCH,
    num_classes=964,
    # A federated round has as many examples: 32 clients with 32 on average.
    by_algorithm={'centralized': {'steps_per_round': 32}},
    find=_find,
    data='omniglot: omniglot_1623.npz, or images_background and'
    ' images_evaluation as folders or zips',
  ),
)
