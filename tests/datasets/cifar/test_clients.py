"""CIFAR over clients: by class, by a split file, and the real set."""

import functools
import subprocess
import sys
import tempfile

import numpy as np
import pytest

from datasets.cifar import clients as cifar
from tests.datasets.cifar import on_disk as cifar_on_disk
from tff_xc import errors


@pytest.fixture
def root(tmp_path):
  return cifar_on_disk.write(tmp_path, cifar_on_disk.files('cifar10', 'binary'))


def test_clients_by_class_sort_as_classes_do(root):
  ids = cifar_on_disk.load(root).train.client_ids
  assert ids == [f'class/{label}' for label in range(10)]
  cifar_on_disk.write(root, cifar_on_disk.files('cifar100', 'binary'))
  ids = cifar_on_disk.load(root, 'cifar100').train.client_ids
  assert ids == [f'class/{label:02d}' for label in range(100)]


def test_shards_of_a_class_are_even_whole_and_always_the_same(root):
  dataset, again = (
    cifar_on_disk.load(root, clients_per_class=2),
    cifar_on_disk.load(root, clients_per_class=2),
  )
  whole = cifar_on_disk.load(root)
  assert dataset.train.client_ids[:3] == ['class/0/0', 'class/0/1', 'class/1/0']
  assert len(dataset.train.client_ids) == 20
  in_order = 0
  for label in range(10):
    parts = [dataset.train.examples(f'class/{label}/{i}') for i in range(2)]
    assert [len(part.y) for part in parts] == [3, 2]
    assert {*parts[0].y.tolist(), *parts[1].y.tolist()} == {label}
    dealt = np.concatenate([part.x for part in parts])
    all_x = whole.train.examples(f'class/{label}').x
    assert sorted(x.tobytes() for x in dealt) == sorted(
      x.tobytes() for x in all_x
    )
    in_order += np.array_equal(dealt, all_x)
    np.testing.assert_array_equal(
      parts[1].x, again.train.examples(f'class/{label}/1').x
    )
  assert in_order < 10


def split_file(root, change=None, header='user_id,image_id,class'):
  """Writes a split of all images over 12 users; `change` edits its lines."""
  _, y = cifar_on_disk.tiny('cifar10')[0]
  lines = [f'{i % 12},{i},{label}' for i, label in enumerate(y)]
  if change:
    change(lines)
  path = root / 'federated_train_alpha_1.00.csv'
  path.write_text('\n'.join([header, *lines]) + '\n')
  return path


def test_a_split_file_says_whose_each_image_is(root):
  x, y = cifar_on_disk.tiny('cifar10')[0]
  train = cifar_on_disk.load(root, split=split_file(root)).train
  assert train.client_ids == [str(user) for user in range(12)]
  for user in range(12):
    np.testing.assert_array_equal(train.examples(str(user)).x, x[user::12])
    np.testing.assert_array_equal(train.labels(str(user)), y[user::12])


def test_columns_may_come_in_another_order_and_images_be_left_out(root):
  _, y = cifar_on_disk.tiny('cifar10')[0]
  path = root / 'split.csv'
  path.write_text(f'class,image_id,user_id\n{y[7]},7,ann\n\n{y[3]},3,bo\n')
  train = cifar_on_disk.load(root, split=str(path)).train
  assert train.client_ids == ['ann', 'bo']
  np.testing.assert_array_equal(train.labels('bo'), [y[3]])


def replace(number, line):
  return lambda lines: lines.__setitem__(number - 2, line)


@pytest.mark.parametrize(
  ('line', 'message'),
  [
    ('1,50,0', "'50'"),
    ('1,-1,0', "'-1'"),
    ('1,x,0', "'x'"),
    ('1,5', 'has 2 fields; expected 3'),
    ('1,5,0,0', 'has 4 fields; expected 3'),
    ('1,6,cat', "'6' has class 'cat'"),
    (f',6,{cifar_on_disk.tiny("cifar10")[0][1][6]}', 'has no user'),
    (
      f'1,5,{cifar_on_disk.tiny("cifar10")[0][1][5]}',
      "'5', as .*line 7",
    ),
  ],
)
def test_a_bad_line_of_a_split_file_is_named(root, line, message):
  path = split_file(root, replace(8, line))
  cifar_on_disk.assert_refused(f'csv, line 8.*{message}', root, split=path)


def test_another_image_order_is_refused_at_its_first_line(root):
  _, y = cifar_on_disk.tiny('cifar10')[0]
  other = next(i for i in range(50) if y[i] != y[0])

  def swap(lines):
    lines[0], lines[other] = f'0,0,{y[other]}', f'0,{other},{y[0]}'

  message = f"line 2: .*'{y[other]}' here and '{y[0]}' in .* order"
  path = split_file(root, swap)
  cifar_on_disk.assert_refused(message, root, split=path)


def test_a_split_file_without_the_columns_is_refused(root):
  path = split_file(root, header='user_id,image,class')
  cifar_on_disk.assert_refused(
    "no column 'image_id', it has user_id, image, class", root, split=path
  )


def test_an_empty_split_file_is_refused(root):
  path = split_file(root, lambda lines: lines.clear())
  cifar_on_disk.assert_refused('has no examples', root, split=path)


def test_a_split_file_that_is_no_text_is_refused(root):
  path = root / 'split.csv'
  path.write_bytes(b'user_id,image_id,class\n\xff\xfe\n')
  cifar_on_disk.assert_refused('not UTF-8 text', root, split=path)


@pytest.mark.parametrize(
  ('arguments', 'message'),
  [
    (
      {'split': 'absent.csv'},
      'absent.csv is no file',
    ),
    ({'clients_per_class': 0}, 'clients_per_class is 0; .* 5 images'),
    ({'clients_per_class': 6}, 'take 1 to 5'),
    ({'clients_per_class': 2, 'split': 'a.csv'}, 'a.csv says whose'),
  ],
)
def test_bad_arguments_are_refused(root, arguments, message):
  cifar_on_disk.assert_refused(message, root, **arguments)


def test_another_name_is_refused(root):
  with pytest.raises(
    errors.InputError, match="'cifar' is no CIFAR; take cifar10"
  ):
    cifar.load(root, 'cifar')


@pytest.mark.slow
def test_the_real_set_is_complete(data_dir):
  pytest.importorskip('PIL')
  script = data_dir / 'cifar10' / 'unpack.py'
  if not script.is_file():
    pytest.skip(f'{script} is absent')
  with tempfile.TemporaryDirectory() as folder:  # pytest would keep its 184 MB.
    subprocess.run([sys.executable, script, folder], check=True)
    dataset = cifar.load(folder)
  sizes = [len(dataset.train.labels(c)) for c in dataset.train.client_ids]
  assert sizes == [5000] * 10
  assert dataset.test.read(np.arange(10_000)).shape == (10_000, 32, 32, 3)
  assert np.bincount(dataset.test.y).tolist() == [1000] * 10
  # The means of the three colours are well known and show the colours' order.
  x = np.concatenate(
    [dataset.train.examples(c).x for c in dataset.train.client_ids]
  )
  means = x.mean((0, 1, 2))
  np.testing.assert_allclose(means, [125.3, 123.0, 113.9], atol=0.06)
  # If planes were read in a wrong order, rows would not be smooth.
  assert np.abs(np.diff(x[:500].astype(int), axis=2)).mean() < 15


def test_clients_by_a_dirichlet_distribution(root):
  load = functools.partial(
    cifar_on_disk.load, root, split='dirichlet', num_clients=4, seed=3
  )
  skewed, even = load(concentration=0.0), load(concentration=1e6)
  for data in (skewed, even):
    assert len(data.train.partition) == 4
    assert len(set(data.train.partition.numbers)) == len(data.train.pool)
  classes = lambda data: [
    len(set(data.train.labels(c))) for c in data.train.client_ids
  ]
  assert max(classes(skewed)) <= max(classes(even))
  again = load(concentration=0.0).train.partition.numbers
  np.testing.assert_array_equal(skewed.train.partition.numbers, again)
