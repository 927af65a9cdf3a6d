"""CIFAR's official folders and archives, whole and broken."""

import numpy as np
import pytest

from datasets.cifar import places as cifar_places
from tests.datasets.cifar import on_disk as cifar_on_disk


@pytest.mark.parametrize('name', cifar_on_disk.COUNTS)
@pytest.mark.parametrize('form', cifar_on_disk.FORMS)
@pytest.mark.parametrize('below', ['', 'named', 'itself'])
def test_a_folder_is_read(tmp_path, name, form, below):
  root = tmp_path / name if below == 'named' else tmp_path
  cifar_on_disk.write(root, cifar_on_disk.files(name, form))
  folder = getattr(cifar_places.LAYOUTS[name], form)
  cifar_on_disk.check_equal(
    cifar_on_disk.load(
      tmp_path / folder if below == 'itself' else tmp_path, name
    ),
    name,
  )


@pytest.mark.parametrize('name', cifar_on_disk.COUNTS)
@pytest.mark.parametrize('form', cifar_on_disk.FORMS)
def test_an_archive_is_read_and_nothing_written(tmp_path, name, form):
  path = (
    tmp_path
    / cifar_places.LAYOUTS[name].archives[cifar_on_disk.FORMS.index(form)]
  )
  cifar_on_disk.archive(path, cifar_on_disk.files(name, form))
  cifar_on_disk.check_equal(cifar_on_disk.load(tmp_path, name), name)
  cifar_on_disk.check_equal(cifar_on_disk.load(path, name), name)
  assert list(tmp_path.rglob('*')) == [path]


# Broken files.


def test_nothing_there_names_what_was_looked_for(tmp_path):
  cifar_on_disk.assert_refused(
    'no cifar10: neither cifar-10-batches-bin', tmp_path
  )
  cifar_on_disk.assert_refused(
    'cifar-100-python.tar.gz', tmp_path / 'absent', 'cifar100'
  )


def test_mosaics_name_the_script_that_unpacks_them(tmp_path):
  cifar_on_disk.write(
    tmp_path / 'cifar10', {'unpack.py': b'', 'train_0.webp': b''}
  )
  script = tmp_path / 'cifar10' / 'unpack.py'
  cifar_on_disk.assert_refused(
    f'run `python {script} OUT` and give --data_dir=OUT', tmp_path
  )


@pytest.mark.parametrize('form', cifar_on_disk.FORMS)
def test_a_missing_file_is_named(tmp_path, form):
  content = cifar_on_disk.files('cifar10', form)
  del content[list(content)[2]]
  cifar_on_disk.assert_refused(
    'has no data_batch_3', cifar_on_disk.write(tmp_path, content)
  )


def test_a_truncated_binary_file_is_refused(tmp_path):
  content = cifar_on_disk.files('cifar10', 'binary')
  content['cifar-10-batches-bin/test_batch.bin'] = b'\0' * (20 * 3073 - 1)
  message = (
    r'test_batch.bin has 61,459 bytes; expected 61,460.* 20 records of 3,073'
  )
  cifar_on_disk.assert_refused(message, cifar_on_disk.write(tmp_path, content))


def test_cifar_100_records_have_3074_bytes(tmp_path):
  content = cifar_on_disk.files('cifar100', 'binary')
  content['cifar-100-binary/train.bin'] = b'\0' * (200 * 3073)
  message = 'train.bin .* 200 records of 3,074'
  cifar_on_disk.assert_refused(
    message, cifar_on_disk.write(tmp_path, content), 'cifar100'
  )


@pytest.mark.parametrize('form', cifar_on_disk.FORMS)
def test_a_label_out_of_range_is_named_with_its_image(tmp_path, form):
  (x, y), test = cifar_on_disk.tiny('cifar10')
  y[13] = 10
  root = cifar_on_disk.write(
    tmp_path, cifar_on_disk.files('cifar10', form, [(x, y), test])
  )
  message = (
    r'data_batch_2\S*: image 3 \(counted from 0\) has label 10; .*0 to 9'
  )
  cifar_on_disk.assert_refused(message, root)


@pytest.mark.parametrize('split', [0, 1])
def test_a_class_with_too_many_images_is_refused(tmp_path, split):
  splits = cifar_on_disk.tiny('cifar10')
  y = splits[split][1]
  y[np.flatnonzero(y == 1)[0]] = 0
  message = [
    'class 0 has 6 training images; expected 5',
    'class 0 has 3 test images; expected 2',
  ][split]
  root = cifar_on_disk.write(
    tmp_path, cifar_on_disk.files('cifar10', 'binary', splits)
  )
  cifar_on_disk.assert_refused(message, root)


def test_a_truncated_archive_is_refused(tmp_path):
  path = tmp_path / 'cifar-10-binary.tar.gz'
  cifar_on_disk.archive(path, cifar_on_disk.files('cifar10', 'binary'))
  path.write_bytes(path.read_bytes()[:-1000])
  cifar_on_disk.assert_refused(r'no whole \.tar\.gz', tmp_path)


def test_a_file_that_is_no_archive_is_refused(tmp_path):
  (tmp_path / 'cifar-10-python.tar.gz').write_text('<html>404</html>')
  cifar_on_disk.assert_refused(r'no whole \.tar\.gz', tmp_path)
