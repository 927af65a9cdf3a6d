"""One's own images: photographs in a folder, tar, zip or TFRecords, or a .npz.

`datasets.images.clients` and `datasets.arrays` say how they are read.
"""

import sys

from datasets.images import record_features
from tasks import encoders
from tasks import own_data
from tasks import task
from tff_xc import errors

# Pixels a side of photographs, unless --image_size says otherwise.
_SIDE = 64


def _check(options) -> None:
  own_data.check(options)
  record_features.parse(options['record_features'])
  if options['image_size']:
    encoders.check_side(
      options,
      options['image_size'],
      f'--image_size={options["image_size"]}: images',
    )


def _load(data_dir, options):
  if own_data.is_arrays(data_dir):
    dataset = _of_arrays(data_dir, options)
  else:
    from datasets.images import clients

    dataset = clients.load(
      data_dir,
      own_data.choice(options),
      side=encoders.stored_side(options, options['image_size'] or _SIDE),
      corrupt=options['corrupt'],
      features=record_features.parse(options['record_features']),
    )
  side = encoders.seen_side(options, dataset.train.pool.spec.shape[0])
  encoders.check_side(options, side, f'{data_dir}: the images')
  # A wrong folder, or no test, is seen at once.
  print(f'{data_dir}: {own_data.described(dataset, "image")}', file=sys.stderr)
  return task.with_encoder(dataset, options)


def _of_arrays(data_dir, options):
  from datasets import arrays

  if options['corrupt'] != 'skip':
    raise errors.InputError(
      f'{data_dir} has no files of images; leave out --corrupt'
    )
  side = options['image_size']
  if side:
    side = encoders.stored_side(options, side)
  return arrays.load(data_dir, own_data.choice(options), side=side)


def _find(data_dir, options=None):
  if own_data.is_arrays(data_dir):
    if options is None:
      from datasets import arrays

      return own_data.find_arrays(arrays.read_images(data_dir))
    return own_data.examined(_of_arrays(data_dir, options), 'image', options)
  from datasets.images import clients

  if options is None:
    return clients.described(data_dir, None)
  return clients.described(
    data_dir,
    own_data.choice(options),
    corrupt=options['corrupt'],
    features=record_features.parse(options['record_features']),
  )


TASKS = (
  own_data.small_task(
    name='images',
    summary='your own images: --data_dir is a folder, .tar, .zip,'
    ' .tfrecord or .npz;'
    ' --split says whose each is',
    load=_load,
    options=(
      'embedding_dim',
      'logit_scale',
      'image_size',
      'corrupt',
      'record_features',
      *encoders.NAMES,
      *own_data.SPLIT,
      'test_examples',
    ),
    check=_check,
    count_classes=own_data.count_classes,
    find=_find,
    data='images (.jpg, .png, .webp, .bmp, .gif, .tif) in a folder, .tar or .zip, in a folder or a .tar for each class'
    ' unless --split names the classes; TFRecords (.tfrecord) in a file or a folder;'
    ' or a .npz with x uint8 [N, height,'
    ' width(, channels)], y [N], client [N], and optionally test_x, test_y,'
    ' retrieval_x, retrieval_y',
  ),
)
