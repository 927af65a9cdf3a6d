"""The user's own images in a `.npz` file, as `datasets.arrays` describes it."""

from tasks import task


def _load(data_dir, options):
  from datasets import arrays

  return task.with_small_encoder(arrays.load(data_dir), options)


def _find(data_dir):
  from datasets import arrays

  return arrays.load(data_dir)


def _count_classes(data_dir):
  """Returns the largest label plus one, or None: `load` says what is wrong."""
  import numpy as np

  try:
    with np.load(data_dir, allow_pickle=False) as file:
      return int(file['y'].max()) + 1
  except Exception:  # NumPy raises many types for a file that is no .npz.
    return None


TASKS = (
  task.Task(
    name='arrays',
    summary='your own images: --data_dir is a .npz with arrays x, y, client',
    load=_load,
    metrics=('top1', 'macro_f1', 'mcc', 'map@10', 'map@r', 'train_top1'),
    rounds=300,
    clients_per_round=16,
    eval_every=20,
    defaults=task.FROM_SCRATCH,
    count_classes=_count_classes,
    find=_find,
    data='the path of a .npz with x uint8 [N, side, side(, channels)], y [N],'
    ' client [N], and optionally test_x, test_y, retrieval_x, retrieval_y',
  ),
)
