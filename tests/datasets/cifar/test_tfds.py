"""CIFAR as TensorFlow Datasets prepares it."""

import numpy as np
import pytest

from tests.datasets.cifar import on_disk as cifar_on_disk


def prepare(root, x_y, ids=True, shift=0):
  """Writes a directory as TFDS prepares it, in another order."""
  tfds = pytest.importorskip('tensorflow_datasets')
  import tensorflow as tf

  features = {
    'image': tfds.features.Image(shape=(32, 32, 3)),
    'label': tfds.features.ClassLabel(num_classes=10),
    **({'id': tfds.features.Text()} if ids else {}),
  }
  features = tfds.features.FeaturesDict(features)
  folder = root / 'cifar10' / '3.0.2'
  folder.mkdir(parents=True)
  infos = []
  for split, (x, y) in zip(('train', 'test'), x_y, strict=True):
    file = folder / f'cifar10-{split}.tfrecord-00000-of-00001'
    with tf.io.TFRecordWriter(str(file)) as writer:
      for i in np.random.default_rng(5).permutation(len(y)):
        example = {'image': x[i], 'label': y[i]}
        if ids:
          example['id'] = f'{split}_{i + shift:05d}'
        example = features.encode_example(example)
        writer.write(features.serialize_example(example))
    infos.append(
      tfds.core.SplitInfo(
        name=split, shard_lengths=[len(y)], num_bytes=file.stat().st_size
      )
    )
  template = tfds.core.ShardedFileTemplate(
    data_dir=folder, dataset_name='cifar10', filetype_suffix='tfrecord'
  )
  tfds.folder_dataset.write_metadata(
    data_dir=folder,
    features=features,
    split_infos=infos,
    version='3.0.2',
    filename_template=template,
  )
  return root


def test_a_tfds_directory_is_read_in_the_official_order(tmp_path):
  prepare(tmp_path, cifar_on_disk.tiny('cifar10'))
  assert (tmp_path / 'cifar10/3.0.2/features.json').is_file()
  for root in (tmp_path, tmp_path / 'cifar10', tmp_path / 'cifar10/3.0.2'):
    cifar_on_disk.check_equal(cifar_on_disk.load(root))


def test_a_tfds_directory_without_ids_keeps_its_order(tmp_path):
  x_y = cifar_on_disk.tiny('cifar10')
  dataset = cifar_on_disk.load(prepare(tmp_path, x_y, ids=False))
  order = np.random.default_rng(5).permutation(20)
  np.testing.assert_array_equal(
    dataset.test.read(np.arange(len(order))), x_y[1][0][order]
  )


def test_tfds_ids_that_are_no_numbering_are_refused(tmp_path):
  root = prepare(tmp_path, cifar_on_disk.tiny('cifar10'), shift=1)
  cifar_on_disk.assert_refused(
    "split train: the ids are not 'train_00000'", root
  )


def test_a_tfds_directory_of_another_size_is_refused(tmp_path):
  (x, y), test = cifar_on_disk.tiny('cifar10')
  cifar_on_disk.assert_refused(
    r"split train has .*'image': \[49, 32.* expected .*\[50, 32",
    prepare(tmp_path, [(x[1:], y[1:]), test]),
  )


def test_a_damaged_tfds_directory_is_refused(tmp_path):
  root = prepare(tmp_path, cifar_on_disk.tiny('cifar10'))
  for path in root.rglob('*.tfrecord*'):
    path.write_bytes(path.read_bytes()[:-50])
  cifar_on_disk.assert_refused(
    r'3\.0\.2: TensorFlow Datasets cannot read split train', root
  )
