"""Tests CelebA from LEAF's JSON and real JPEGs in a folder or a zip."""

import io
import shutil

import numpy as np
import pytest
from PIL import Image

from datasets.leaf import sets
from tests.datasets import images_on_disk
from tests.datasets.leaf import on_disk
from tff_xc import errors


def load(data_dir, **options):
  return sets.load('celeba', data_dir, **{'min_examples': 1, **options})


def jpeg(number):
  """Returns a JPEG with the size of CelebA's images."""
  pixels = np.random.default_rng(number).integers(0, 256, (11, 9, 3), np.uint8)
  return images_on_disk.encoded(Image.fromarray(pixels).resize((178, 218)), 'JPEG')


def write(data_dir, sizes=(6,) * 10, labels=float):
  """Writes users with these numbers of images, in LEAF's folders."""
  users, number = {}, 0
  folder = data_dir / 'celeba/data'
  images = folder / 'raw/img_align_celeba'
  images.mkdir(parents=True)
  for user, size in enumerate(sizes):
    names = [f'{number + i + 1:06d}.jpg' for i in range(size)]
    users[str(user)] = names, [labels((user + i) % 2) for i in range(size)]
    for i, name in enumerate(names):
      (images / name).write_bytes(jpeg(number + i))
    number += size
  on_disk.write(folder / 'all_data/all_data.json', users)
  return images


def zipped(images):
  shutil.make_archive(str(images), 'zip', images.parent, images.name)
  shutil.rmtree(images)


@pytest.mark.parametrize('labels', [int, float])
@pytest.mark.parametrize('pack', [None, zipped])
def test_images_are_decoded_as_leaf_does(tmp_path, labels, pack):
  images = write(tmp_path, labels=labels)
  if pack:
    pack(images)
  dataset = load(tmp_path)
  assert dataset.num_classes == 2 and not dataset.exact
  assert len(dataset.train.client_ids) == 9
  x, y = dataset.train.examples('1')
  assert x.dtype == np.uint8
  np.testing.assert_array_equal(y, [1, 0, 1, 0, 1, 0])
  for i in range(6):
    image = Image.open(io.BytesIO(jpeg(6 + i)))
    np.testing.assert_array_equal(x[i], np.array(image.resize((84, 84))))
  spec = dataset.train.element_type_structure['x']
  assert spec.shape == (84, 84, 3)


def test_users_with_few_images(tmp_path, capsys):
  # Like LEAF's -k 5, the program removes users with fewer than 5 images before the split.
  write(tmp_path, sizes=[4, 5, 9, 9, 9] * 4)
  dataset = load(tmp_path, min_examples=8)
  assert 'of 14 training users' in capsys.readouterr().err
  assert set(dataset.train.partition.sizes) == {9}
  assert 9 * len(dataset.train.client_ids) + len(dataset.test) == 108


def test_missing_images_and_those_that_are_damaged_when_used(tmp_path):
  images = write(tmp_path)
  dataset = load(tmp_path)
  for content in (jpeg(6)[:400], b'hello'):
    (images / '000007.jpg').write_bytes(content)
    dataset.train.examples('0')
    said = r'000007\.jpg is not a readable image'
    with pytest.raises(errors.InputError, match=said):
      dataset.train.examples('1')
  for number in (3, 7, 8, 50):
    (images / f'{number:06d}.jpg').unlink()
  said = r'4 of the 60 images .* 000003.jpg, 000007.jpg, 000008.jpg \.\.\.'
  with pytest.raises(errors.InputError, match=said):
    load(tmp_path)
  shutil.rmtree(images)
  with pytest.raises(errors.InputError, match='no images beside'):
    load(tmp_path)


@pytest.mark.parametrize(
  ('x', 'y', 'said'),
  [
    *(('1.jpg', y, 'labels') for y in ('1', 0.5, 2, True)),
    *((x, 1, 'x has') for x in (7, '', 'a' * 65, '1.jpg\0')),
  ],
)
def test_what_is_wrong_is_said(tmp_path, x, y, said):
  write(tmp_path)
  path = tmp_path / 'celeba/data/all_data/all_data.json'
  on_disk.write(path, {'a': ([x], [y])})
  with pytest.raises(errors.InputError, match=f"json, user 'a': {said} "):
    load(tmp_path)
