"""Omniglot from tiny files in the official formats, and the real Omniglot."""

import shutil

import numpy as np
import pytest
from PIL import Image

from datasets import omniglot
from tests.datasets import images_on_disk
from tff_xc import errors

COUNTS = omniglot.Counts(background=3, evaluation=2, alphabets=3, drawers=4)
# The order is mixed, like a file system's list. The second set contains Angelic.
CLASSES = [
  (False, 'Greek/character02'),
  (True, 'Angelic/character02'),
  (False, 'Greek/character01'),
  (True, 'Angelic/character01'),
  (False, 'Braille/character01'),
]
SORTED = [
  'Braille/character01',
  'Greek/character01',
  'Greek/character02',
  'Angelic/character01',
  'Angelic/character02',
]


def ink(name, drawer):
  """Returns a drawing bool [105, 105] that depends on class and drawer."""
  seed = [*name.encode(), drawer]
  return np.random.default_rng(seed).random([105, 105]) < 0.1


def png(drawing):
  return images_on_disk.encoded(Image.fromarray(~drawing).convert('1'))  # Ink is black.


def write_folders(place):
  for number, (evaluation, name) in enumerate(CLASSES):
    folder = place / omniglot.PARTS[evaluation] / name
    folder.mkdir(parents=True)
    for drawer in range(1, 5):
      path = folder / f'{709 + number:04d}_{drawer:02d}.png'
      path.write_bytes(png(ink(name, drawer)))


def write_zips(place):
  write_folders(place)
  for part in omniglot.PARTS:
    shutil.make_archive(str(place / part), 'zip', place, part)
    shutil.rmtree(place / part)


def write_npz(place):
  names = [name for _, name in CLASSES]
  order = np.random.default_rng(0).permutation(20)
  label, drawer = order // 4, order % 4 + 1
  bits = [np.packbits(ink(names[c], d), axis=-1) for c, d in zip(label, drawer, strict=True)]
  np.savez_compressed(
    place / omniglot.NPZ,
    bits=np.array(bits),
    label=label.astype(np.int16),
    drawer=drawer.astype(np.int8),
    is_evaluation=np.array([CLASSES[c][0] for c in label]),
    class_names=np.array(names),
  )


def load(data_dir):
  return omniglot.load(data_dir, train_drawers=3, expected=COUNTS)


def held_out(pool):
  return pool.examples(np.arange(len(pool)))


def _naive_area_mean(ink, size):
  """Splits each pixel into size × size equal parts, and averages blocks of these parts."""
  fine = np.repeat(np.repeat(ink, size, axis=0), size, axis=1)
  side = ink.shape[0]
  out = np.zeros([size, size])
  for i in range(size):
    for j in range(size):
      block = fine[i * side : (i + 1) * side, j * side : (j + 1) * side]
      out[i, j] = block.mean()
  return np.floor(255 * out + 0.5 + 1e-9).astype(np.uint8)


@pytest.mark.parametrize('size', [1, 28, 35, 104, 105])
def test_shrink_is_the_area_mean(size):
  ink = (np.random.default_rng(size).random([2, 105, 105]) < 0.3).astype('u1')
  got = omniglot.shrink(ink, size)
  assert got.dtype == np.uint8
  for k in range(2):
    np.testing.assert_array_equal(got[k], _naive_area_mean(ink[k], size))


def shrunk(label, drawer):
  return _naive_area_mean(ink(SORTED[label], drawer), 28)


@pytest.mark.parametrize('write', [write_folders, write_zips, write_npz])
def test_clients_are_drawers_and_other_drawers_and_classes_are_held_out(tmp_path, write):
  (tmp_path / 'omniglot').mkdir()
  write(tmp_path / 'omniglot')
  dataset = load(tmp_path)
  assert dataset.num_classes == 3
  assert dataset.train.client_ids == [
    'Braille/01',
    'Braille/02',
    'Braille/03',
    'Greek/01',
    'Greek/02',
    'Greek/03',
  ]
  x, y = dataset.train.examples('Greek/02')
  assert (x.dtype, y.dtype) == (np.uint8, np.int32)
  np.testing.assert_array_equal(y, [1, 2])
  np.testing.assert_array_equal(x, [shrunk(1, 2), shrunk(2, 2)])
  x, y = held_out(dataset.test)
  np.testing.assert_array_equal(y, [0, 1, 2])
  np.testing.assert_array_equal(x, [shrunk(label, 4) for label in range(3)])
  x, y = held_out(dataset.retrieval)
  np.testing.assert_array_equal(y, [0, 0, 0, 0, 1, 1, 1, 1])
  expected = [shrunk(3 + i // 4, i % 4 + 1) for i in range(8)]
  np.testing.assert_array_equal(x, expected)


def test_missing_data_say_where_to_put_them(tmp_path):
  with pytest.raises(errors.InputError) as e:
    load(tmp_path)
  for part in (str(tmp_path / 'omniglot'), 'omniglot_1623.npz', '--data_dir'):
    assert part in str(e.value)
  write_folders(tmp_path)
  shutil.rmtree(tmp_path / 'images_evaluation')
  with pytest.raises(errors.InputError, match='images_evaluation'):
    load(tmp_path)


@pytest.mark.parametrize(
  ('change', 'said'),
  [
    (lambda a: {'label': np.where(a['label'] == 3, 5, a['label'])}, '1623'),
    (lambda a: {'drawer': None}, '1623'),
    (lambda a: {'bits': a['bits'][..., :13]}, '105, 14'),
    (lambda a: {'drawer': a['drawer'][:-1]}, '1623'),
    (
      lambda a: {'drawer': a['drawer'] - (a['drawer'] == 4) * (a['label'] == 0)},
      'one by each',
    ),
  ],
)
def test_npz_of_other_content(tmp_path, change, said):
  write_npz(tmp_path)
  path = tmp_path / omniglot.NPZ
  with np.load(path) as arrays:
    arrays = dict(arrays)
  arrays = {k: v for k, v in {**arrays, **change(arrays)}.items() if v is not None}
  np.savez_compressed(path, **arrays)
  with pytest.raises(errors.InputError, match=said):
    load(tmp_path)
  data = bytearray(path.read_bytes())
  data[2000] ^= 0xFF
  path.write_bytes(data)
  with pytest.raises(errors.InputError, match=r'1623\.npz'):
    load(tmp_path)


@pytest.mark.parametrize('keep', [0, 20, 400, -40, None])
def test_a_damaged_png_is_found_when_it_is_read(tmp_path, keep):
  write_folders(tmp_path)
  path = tmp_path / 'images_background/Greek/character02/0709_03.png'
  other = png(np.zeros([28, 105], bool))  # An image with another size.
  path.write_bytes(other if keep is None else path.read_bytes()[:keep])
  dataset = load(tmp_path)
  dataset.train.examples('Greek/02')
  said = f'{path}.*28×105' if keep is None else str(path)
  with pytest.raises(errors.InputError, match=said):
    dataset.train.examples('Greek/03')


@pytest.mark.slow
def test_the_real_one(data_dir):
  if not (data_dir / 'omniglot').is_dir():
    pytest.skip(f'no Omniglot in {data_dir}; set TFF_XC_DATA')
  dataset = omniglot.load(data_dir)
  train = dataset.train
  assert dataset.num_classes == 964
  assert len(train.client_ids) == 480
  labels = np.concatenate([train.labels(c) for c in train.client_ids])
  for y, classes, each in (
    (labels, 964, 16),
    (dataset.test.labels, 964, 4),
    (dataset.retrieval.labels, 659, 20),
  ):
    np.testing.assert_array_equal(np.bincount(y), np.full(classes, each))
  assert 15 < held_out(dataset.retrieval).x.mean() < 30  # Ink is bright, and covers few pixels.
