"""TFRecords: TFF's layout and others, damaged ones, and one's own features."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow_federated.python.simulation.datasets import (
  vision_datasets_utils,
)

from datasets.images import clients
from datasets.images import decode
from datasets.images import packed
from datasets.images import record_features
from datasets.images import store as store_lib
from datasets.splits import own
from tests.datasets.images import on_disk
from tff_xc import errors


def example(**values):
  """A serialized tf.train.Example; `/` is written as `__`."""
  feature = {}
  for name, value in values.items():
    if isinstance(value, int):
      made = tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))
    else:
      text = value if isinstance(value, bytes) else value.encode()
      made = tf.train.Feature(bytes_list=tf.train.BytesList(value=[text]))
    feature[name.replace('__', '/')] = made
  return tf.train.Example(
    features=tf.train.Features(feature=feature)
  ).SerializeToString()


def write(path, contents):
  path.parent.mkdir(parents=True, exist_ok=True)
  with tf.io.TFRecordWriter(str(path)) as writer:
    for content in contents:
      writer.write(content)
  return path


def of_tff(folder):
  """What TFF's gldv2 and inaturalist write: 3 users, 4 classes."""
  make = lambda number, label: vision_datasets_utils.create_example(
    on_disk.photograph(number), label
  ).SerializeToString()
  for user in range(3):
    write(
      folder / 'train' / f'user{user}',
      [make(10 * user + i, (user + i) % 4) for i in range(user + 2)],
    )
  write(folder / 'test.tfRecord', [make(50 + i, i) for i in range(4)])
  return folder


def load(path, split='', corrupt='skip', **more):
  choice = own.Choice(split, **more)
  return clients.load(path, choice, side=16, corrupt=corrupt)


def test_tffs_layout_has_its_users_and_its_test(tmp_path):
  path = of_tff(tmp_path / 'gld23k')
  (path / 'train' / 'Thumbs.db').write_bytes(b'\xd0\xcf')
  dataset = load(path)
  assert dataset.train.client_ids == ['user0', 'user1', 'user2']
  assert dataset.num_classes == 4
  # TFF's own `load_data_from_cache` fails in 0.87: it lacks an argument.
  read = lambda file: sorted(
    int(e['class'][0])
    for e in vision_datasets_utils.load_tfrecord(
      str(tmp_path / 'gld23k' / file), ''
    )
  )
  for user in dataset.train.client_ids:
    _, y = dataset.train.examples(user)
    assert sorted(y) == read(f'train/{user}')
  assert sorted(dataset.test.y) == read('test.tfRecord')
  x, y = dataset.train.examples('user1')
  expected = {
    i: decode.square(on_disk.photograph(10 + i), 16) for i in range(3)
  }
  for image, label in zip(x, y, strict=True):
    np.testing.assert_array_equal(image, expected[(label - 1) % 4])


def test_ids_and_described(tmp_path):
  path = of_tff(tmp_path / 'gld23k')
  found = store_lib.open_store(path)
  ids = list(found.names)
  assert ids[:3] == [
    'test/0/test-000000.jpg',
    'test/1/test-000001.jpg',
    'test/2/test-000002.jpg',
  ]
  assert 'train/0/user0/train-user0-000000.jpg' in ids
  assert found.read(0) == on_disk.photograph(50)
  assert clients.described(path, None) == (
    '13 images of 4 classes (0, 1, 2, ...), 4 of them test; 3 clients'
  )


@pytest.mark.parametrize('part', ['test', 'valid/a', 'validation', 'dev'])
def test_files_of_a_test_are_known_by_their_names(tmp_path, part):
  for name, first in (('train', 0), (part, 20)):
    made = [
      example(image=on_disk.photograph(first + i), label=i % 2)
      for i in range(4)
    ]
    write(tmp_path / f'{name}.tfrecord', made)
  assert load(tmp_path, 'class').test.y.tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize('one_file', [True, False])
def test_shards_with_usual_features(tmp_path, one_file):
  made = [
    example(
      image__encoded=on_disk.photograph(i),
      image__class__label=i % 3,
      image__filename=f'folder/photo{i}.png' if i else 'first',
      image__height=16,
    )
    for i in range(8)
  ]
  if one_file:
    path = write(tmp_path / 'mine.TFRecord', made)
  else:
    path = tmp_path / 'shards'
    for shard in range(2):
      write(path / f'a.tfrecord-0000{shard}-of-00002', made[shard::2])
  dataset = load(path, 'class')
  assert [len(dataset.train.labels(c)) for c in dataset.train.client_ids] == [
    *(3, 3, 2)
  ]
  ids = set(store_lib.open_store(path).names)
  assert {'train/0/first.jpg', 'train/1/photo1.png'} <= ids
  if one_file:
    split = tmp_path / 'split.csv'
    lines = ['user_id,image_id,class', 'a,photo1,x', 'b,photo2,y', 'b,first,x']
    split.write_text('\n'.join([*lines, '']))
    dataset = load(path, str(split))
    assert dataset.train.client_ids == ['a', 'b']
    assert dataset.class_names == ['x', 'y']


def test_features_of_other_names(tmp_path):
  path = write(
    tmp_path / 'mine.tfrecord',
    [
      example(photo=on_disk.photograph(i), kind=f'a/{i % 2}', who=i % 3, key=i)
      for i in range(6)
    ],
  )
  given = record_features.parse('image=photo,class=kind, user=who,id=key')
  dataset = clients.load(path, own.Choice(), side=16, features=given)
  assert dataset.train.client_ids == ['0', '1', '2']
  found = store_lib.open_store(path, given)
  assert next(iter(found.names)) == 'train/a%2F0/0/0.jpg'
  with pytest.raises(errors.InputError, match='it has key, kind, photo, who'):
    store_lib.open_store(path)
  with pytest.raises(errors.InputError, match=r'record 1 has no user \(nobody'):
    store_lib.open_store(path, {**given, 'user': 'nobody'})


@pytest.mark.parametrize('text', ['photo', 'picture=a', 'image=', 'id=a,id=b'])
def test_what_names_no_features_is_refused(text):
  with pytest.raises(errors.InputError, match='expected image=NAME'):
    record_features.parse(text)


def test_corrupt_images_are_counted_and_left_out_or_fatal(tmp_path, capsys):
  whole = on_disk.photograph(1)
  made = [on_disk.photograph(i) for i in range(6)]
  made[3], made[4] = whole[: len(whole) // 2], b'no image'
  path = write(
    tmp_path / 'mine.tfrecord',
    [example(image=m, label=i % 2) for i, m in enumerate(made)],
  )
  dataset = load(path, 'class')
  assert '2 of 6 images cannot be read' in capsys.readouterr().err
  assert sum(dataset.train.partition.sizes) == 4
  fatal = load(path, 'class', 'fail')
  with pytest.raises(errors.InputError, match='is not a readable image'):
    fatal.train.examples('class/1')


def cut(data):
  return data[:-20]


def damaged(data):
  return data[:3] + bytes([data[3] ^ 1]) + data[4:]


@pytest.mark.parametrize(
  ('change', 'message'),
  [
    (cut, 'ends within its last record'),
    (damaged, 'is no TFRecord file from byte 0 on'),
    (lambda data: data + b'xyz', 'ends within its last record'),
    (lambda data: b'', 'has no images'),
  ],
)
def test_a_damaged_file_is_refused(tmp_path, change, message):
  path = write(
    tmp_path / 'mine.tfrecord', [example(image=on_disk.photograph(0), label=1)]
  )
  path.write_bytes(change(path.read_bytes()))
  with pytest.raises(errors.InputError, match=message):
    store_lib.open_store(path)


def test_what_is_no_example_or_ambiguous_is_refused(tmp_path):
  bad = write(tmp_path / 'a.tfrecord', [b'\xff\xff'])
  with pytest.raises(errors.InputError, match=r'record 1 is no tf\.train\.Exa'):
    store_lib.open_store(bad)
  image = on_disk.photograph(0)
  twice = write(tmp_path / 'b.tfrecord', [example(image=image, id=1)] * 2)
  with pytest.raises(errors.InputError, match='has two images'):
    store_lib.open_store(twice)
  some = [example(image=image, label=1), example(image=image)]
  mixed = write(tmp_path / 'c.tfrecord', some)
  with pytest.raises(errors.InputError, match='with a class and without'):
    store_lib.open_store(mixed)


def test_checksums_are_those_of_tensorflow(tmp_path):
  path = write(tmp_path / 'a.tfrecord', [b'12345'])
  data = path.read_bytes()
  assert packed.masked_crc(data[:8]) == int.from_bytes(data[8:12], 'little')
  assert packed.masked_crc(b'12345') == int.from_bytes(data[-4:], 'little')
