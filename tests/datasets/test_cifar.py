"""CIFAR in every file format, complete, damaged and malicious, and split among clients."""

import os
import pickle
import subprocess
import sys
import tempfile

import numpy as np
import pytest

from datasets import cifar
from tests.datasets import cifar_on_disk


def write(root, form='binary', name='cifar10', **changes):
  """Writes the official files. `changes` maps names to contents; None removes a file."""
  content = cifar_on_disk.files(name, form)
  folder = next(iter(content)).split('/')[0]
  content |= {f'{folder}/{file}': raw for file, raw in changes.items()}
  content = {path: raw for path, raw in content.items() if raw is not None}
  return cifar_on_disk.write(root, content)


@pytest.mark.parametrize('name', cifar_on_disk.COUNTS)
@pytest.mark.parametrize('form', cifar_on_disk.FORMS)
@pytest.mark.parametrize('below', ['', 'named', 'itself'])
def test_a_folder_is_read(tmp_path, name, form, below):
  write(tmp_path / name if below == 'named' else tmp_path, form, name)
  folder, _ = cifar.LAYOUTS[name].places[form]
  given = tmp_path / folder if below == 'itself' else tmp_path
  cifar_on_disk.check_equal(cifar_on_disk.load(given, name), name)


@pytest.mark.parametrize('name', cifar_on_disk.COUNTS)
@pytest.mark.parametrize('form', cifar_on_disk.FORMS)
def test_an_archive_is_read_and_nothing_written(tmp_path, name, form):
  path = tmp_path / cifar.LAYOUTS[name].places[form][1]
  cifar_on_disk.archive(path, cifar_on_disk.files(name, form))
  for given in (tmp_path, path):
    cifar_on_disk.check_equal(cifar_on_disk.load(given, name), name)
  assert list(tmp_path.rglob('*')) == [path]


def test_what_is_not_there_names_what_was_looked_for(tmp_path):
  cifar_on_disk.assert_refused('cifar-10-batches-bin', tmp_path)
  cifar_on_disk.assert_refused('cifar-100-python', tmp_path / 'absent', 'cifar100')


BROKEN = {
  'a missing file': ('binary', {'data_batch_3.bin': None}),
  'a file that is cut': ('binary', {'test_batch.bin': bytes(61_459)}),
  'other labels': ('binary', {'test_batch.bin': bytes(20 * 3_073)}),
  'labels that are none': ('python', {'data_batch_4': {'labels': [0.5] * 10}}),
  'a label too many': ('python', {'data_batch_4': {'labels': [10] * 10}}),
  'no array': ('python', {'data_batch_4': {'data': [1]}}),
  'other pixels': ('python', {'data_batch_4': {'data': np.zeros([10, 3072])}}),
  'a pickle of another thing': ('python', {'data_batch_4': [1, 2]}),
}


@pytest.mark.parametrize('name', BROKEN)
def test_a_copy_that_is_not_whole_is_refused(tmp_path, name):
  form, changes = BROKEN[name]
  good = {'data': np.zeros([10, 3072], np.uint8), 'labels': [0] * 10}
  for file, content in changes.items():
    if isinstance(content, dict):
      content = {**good, **content}
    raw = (
      content if content is None or isinstance(content, bytes) else cifar_on_disk.pickled(content)
    )
    write(tmp_path, form, **{file: raw})
  cifar_on_disk.assert_refused('no whole copy', tmp_path)


# Pickles of protocols 2 and 4.


@pytest.mark.parametrize('protocol', [2, 4])
def test_pickles_of_python_3_are_read_too(tmp_path, protocol):
  content = {
    path: pickle.dumps(pickle.loads(raw, encoding='bytes'), protocol)
    for path, raw in cifar_on_disk.files('cifar10', 'python').items()
  }
  cifar_on_disk.check_equal(cifar_on_disk.load(cifar_on_disk.write(tmp_path, content)))


class Call:
  """An object that calls `function` when it is unpickled."""

  def __init__(self, function, *arguments):
    self.call = function, arguments

  def __reduce__(self):
    return self.call


@pytest.mark.parametrize('call', ['os.system', 'builtins.eval', 'nested'])
@pytest.mark.parametrize('protocol', [0, 2, 4])
def test_a_pickle_that_calls_functions_is_refused(tmp_path, call, protocol):
  mark = tmp_path / 'was_here'
  batch = {
    'os.system': Call(os.system, f'touch {mark}'),
    'builtins.eval': Call(eval, f'open({str(mark)!r}, "w")'),
    'nested': {b'data': [np.array([Call(os.mkdir, str(mark))], object)]},
  }[call]
  write(tmp_path, 'python', data_batch_4=pickle.dumps(batch, protocol))
  cifar_on_disk.assert_refused('it calls', tmp_path)
  assert not mark.exists()


# The directory that TensorFlow Datasets prepares.


def prepare(root, x_y):
  """Writes a directory like TensorFlow Datasets, with the images in another order."""
  tfds = pytest.importorskip('tensorflow_datasets')
  import tensorflow as tf

  features = tfds.features.FeaturesDict(
    {
      'image': tfds.features.Image(shape=(32, 32, 3)),
      'label': tfds.features.ClassLabel(num_classes=10),
      'id': tfds.features.Text(),
    }
  )
  folder = root / 'cifar10' / '3.0.2'
  folder.mkdir(parents=True)
  infos = []
  for split, (x, y) in zip(('train', 'test'), x_y, strict=True):
    file = folder / f'cifar10-{split}.tfrecord-00000-of-00001'
    with tf.io.TFRecordWriter(str(file)) as writer:
      for i in np.random.default_rng(5).permutation(len(y)):
        example = {'image': x[i], 'label': y[i], 'id': f'{split}_{i:05d}'}
        example = features.encode_example(example)
        writer.write(features.serialize_example(example))
    size = file.stat().st_size
    info = tfds.core.SplitInfo(name=split, shard_lengths=[len(y)], num_bytes=size)
    infos.append(info)
  tfds.folder_dataset.write_metadata(
    data_dir=folder,
    features=features,
    split_infos=infos,
    version='3.0.2',
    filename_template=tfds.core.ShardedFileTemplate(
      data_dir=folder, dataset_name='cifar10', filetype_suffix='tfrecord'
    ),
  )
  return root


def test_a_tfds_directory_is_read_in_the_official_order(tmp_path):
  prepare(tmp_path, cifar_on_disk.tiny('cifar10'))
  for root in (tmp_path, tmp_path / 'cifar10', tmp_path / 'cifar10/3.0.2'):
    cifar_on_disk.check_equal(cifar_on_disk.load(root))


def test_the_folder_may_be_the_current_one(tmp_path, monkeypatch):
  (tmp_path / 'cifar-10-batches-bin').mkdir()
  monkeypatch.chdir(tmp_path / 'cifar-10-batches-bin')
  assert cifar.find('.', 'cifar10') == (tmp_path / 'cifar-10-batches-bin', 'binary')


# Splits among clients.


def test_a_split_file_says_whose_each_image_is(tmp_path):
  root = write(tmp_path)
  x, y = cifar_on_disk.tiny('cifar10')[0]
  path = root / 'federated_train_alpha_1.00.csv'
  lines = [f'{i % 12},{i},{label}' for i, label in enumerate(y)]
  path.write_text('\n'.join(['user_id,image_id,class', *lines, '']))
  train = cifar_on_disk.load(root, split=path).train
  assert train.client_ids == [str(user) for user in range(12)]
  for user in range(12):
    np.testing.assert_array_equal(train.examples(str(user)).x, x[user::12])
    np.testing.assert_array_equal(train.labels(str(user)), y[user::12])
  other = next(i for i in range(50) if y[i] != y[0])
  path.write_text(f'user_id,image_id,class\n0,0,{y[other]}\n')
  cifar_on_disk.assert_refused('line 2: .*order', root, split=path)


def test_a_rule_makes_the_clients(tmp_path):
  train = cifar_on_disk.load(write(tmp_path), split='iid:5').train
  assert train.partition.sizes.tolist() == [10] * 5


@pytest.mark.slow
def test_the_real_set_is_complete(data_dir):
  script = data_dir / 'cifar10' / 'unpack.py'
  if not script.is_file():
    pytest.skip(f'{script} is absent')
  with tempfile.TemporaryDirectory() as folder:  # pytest would keep these 184 MB.
    subprocess.run([sys.executable, script, folder], check=True)
    dataset = cifar.load(folder)
  sizes = [len(dataset.train.labels(c)) for c in dataset.train.client_ids]
  assert sizes == [5000] * 10
  assert dataset.test.read(np.arange(10_000)).shape == (10_000, 32, 32, 3)
  assert np.bincount(dataset.test.labels).tolist() == [1000] * 10
  # The means of red, green and blue are well known, so they show the order of the channels.
  x = np.concatenate([dataset.train.examples(c).x for c in dataset.train.client_ids])
  means = x.mean((0, 1, 2))
  np.testing.assert_allclose(means, [125.3, 123.0, 113.9], atol=0.06)
  # If the channels were read in a wrong layout, neighboring pixels would differ more.
  assert np.abs(np.diff(x[:500].astype(int), axis=2)).mean() < 15
