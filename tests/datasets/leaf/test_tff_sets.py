"""Tests TFF's files of LEAF's data: the real Shakespeare, and small files in each format."""

import random

import h5py
import numpy as np
import pytest

from datasets.leaf import files as leaf_files, sets, shakespeare, tff_sets
from tests.datasets.leaf import tff_on_disk
from tff_xc import errors

CLIENTS = [f'f{i:04d}_{i}' for i in range(10)]


def load(name, data_dir, **options):
  return sets.load(f'{name}-tff', data_dir, **{'min_examples': 1, **options})


def emnist(levels=255):
  draw = np.random.default_rng(0).integers
  return {
    split: {
      client: {
        'pixels': (draw(0, levels + 1, (k, 28, 28)) / levels).astype('f'),
        'label': draw(0, 62, k).astype(np.int32),
      }
      for client in CLIENTS[::-1]
    }
    for split, k in (('train', 5), ('test', 2))
  }


def celeba():
  draw = np.random.default_rng(0).integers
  return {
    split: {
      client: {
        'image': draw(0, 256, (k, 84, 84, 3), np.uint8),
        'smiling': draw(0, 2, k).astype(bool),
      }
      for client in clients
    }
    for split, clients, k in (('train', CLIENTS[:7], 3), ('test', CLIENTS[7:], 2))
  }


def snippets():
  text = 'To be, or not to be: that is the question'
  return {
    split: {
      f'PLAY_{client}': {
        'snippets': np.array([f'{text}\n{split} {client} {i}' for i in range(k)], 'S')
      }
      for client in CLIENTS
    }
    for split, k in (('train', 2), ('test', 1))
  }


CONTENT = {'emnist': emnist, 'celeba': celeba, 'shakespeare': snippets}


@pytest.fixture(params=sorted(tff_on_disk.WRITERS))
def write(request, tmp_path):
  def write(name, content=None):
    folder = tmp_path / name
    folder.mkdir()
    content = content or CONTENT[name]()
    tff_on_disk.WRITERS[request.param](folder, name, content)
    return content

  return write


@pytest.mark.parametrize('levels', [255, 1000])
def test_emnist(tmp_path, write, levels):
  content = write('emnist', emnist(levels))
  for _ in range(2):
    dataset = load('emnist', tmp_path)
    assert dataset.name == 'emnist-tff'
    assert dataset.num_classes == 62
    drawn = random.Random(0).sample(range(10), 9)
    assert dataset.train.client_ids == [CLIENTS[i] for i in sorted(drawn)]
    for client in dataset.train.client_ids:
      x, y = dataset.train.examples(client)
      parts = [content[split][client] for split in ('train', 'test')]
      np.testing.assert_array_equal(x, np.concatenate([part['pixels'] for part in parts]))
      np.testing.assert_array_equal(y, np.concatenate([part['label'] for part in parts]))
    assert len(dataset.test) == 7


def test_celeba(tmp_path, write):
  content = write('celeba')
  for _ in range(2):
    dataset = load('celeba', tmp_path)
    assert dataset.train.client_ids == CLIENTS[:7]
    # The images are read in every round. A run stops if the files change.
    assert dataset.train.pool.files
    assert all(file.is_file() for file in dataset.train.pool.files)
    for client in CLIENTS[:7]:
      x, y = dataset.train.examples(client)
      assert x.dtype == np.uint8
      np.testing.assert_array_equal(x, content['train'][client]['image'])
      np.testing.assert_array_equal(y, content['train'][client]['smiling'])
    numbers = np.array([5, 0, 3])
    x = np.concatenate([c['image'] for c in content['test'].values()])
    np.testing.assert_array_equal(dataset.test.read(numbers), x[numbers])


def test_shakespeare(tmp_path, write):
  content = write('shakespeare')
  dataset = load('shakespeare', tmp_path)
  assert len(dataset.train.client_ids) == 9
  for client in dataset.train.client_ids:
    lines = [*content['train'][client]['snippets'], *content['test'][client]['snippets']]
    text = b' '.join(lines).decode().replace('\n', ' ').replace('_', ' ') + ' '
    x, y = dataset.train.examples(client)
    assert len(x) == len(text) - 80
    for i in (0, 7, len(x) - 1):
      found = ''.join(shakespeare.ALPHABET[c] for c in [*x[i], y[i]])
      assert found == text[i : i + 81]


@pytest.mark.slow
def test_the_real_shakespeare(data_dir, capsys):
  dataset = load('shakespeare', data_dir, min_examples=64)
  assert '59 of 643' in capsys.readouterr().err
  assert len(dataset.train.client_ids) == 584
  assert len(dataset.train.pool) == 2_585_814
  paths = leaf_files.find_tff('shakespeare', data_dir)
  sizes = [0, 0]
  for client in tff_sets.opened('shakespeare', paths).clients():
    sizes[client.part] += len(client.rows)
  assert sizes == [16_068, 2_356]


@pytest.mark.parametrize('name', CONTENT)
def test_missing_and_damaged_files(tmp_path, name, write):
  with pytest.raises(errors.InputError, match=f'no {name} of TFF in'):
    load(name, tmp_path)
  write(name)
  for path in (tmp_path / name).iterdir():
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 3])
  with pytest.raises(errors.InputError, match=name) as e:
    load(name, tmp_path).train.examples(CLIENTS[0])
  assert '\n' not in str(e.value)


@pytest.mark.parametrize(
  ('column', 'value', 'said'),
  [
    ('label', np.array([62] * 5), 'label 62'),
    ('label', np.full(5, 0.5), 'float64'),
    ('pixels', np.full((5, 28, 28), 1.5, 'f'), r'outside \[0, 1\]'),
    ('pixels', np.full((5, 28, 28), np.nan, 'f'), r'outside \[0, 1\]'),
    ('pixels', np.zeros((5, 784), 'f'), r'float32 \[784\]'),
    ('pixels', np.zeros((5, 28, 28), int), 'int64'),
    ('label', np.zeros(4, int), 'damaged'),
  ],
)
def test_what_is_wrong_is_said(tmp_path, column, value, said):
  content = emnist()
  content['train'][CLIENTS[4]][column] = value
  tff_on_disk.write_hdf5(tmp_path, 'emnist', content)
  with pytest.raises(errors.InputError, match=f'fed_emnist_train.h5.*{said}'):
    load('emnist', tmp_path)


def test_a_packed_database_is_told_how_to_unpack(tmp_path):
  (tmp_path / 'emnist_all.sqlite.lzma').write_bytes(b'')
  with pytest.raises(errors.InputError, match='--decompress'):
    load('emnist', tmp_path)


def test_celebrities_of_both_parts(tmp_path):
  content = celeba()
  content['test'][CLIENTS[0]] = content['train'][CLIENTS[0]]
  tff_on_disk.write_hdf5(tmp_path, 'celeba', content)
  with pytest.raises(errors.InputError, match='both in train and in test'):
    load('celeba', tmp_path)


def test_text_of_another_file_is_no_example(tmp_path):
  other = tmp_path / 'secret.txt'
  other.write_text('a password')
  for part in ('train', 'test'):
    with h5py.File(tmp_path / f'shakespeare_{part}.h5', 'w') as file:
      file.create_dataset('examples/A/snippets', (1,), 'S10', external=[(str(other), 0, 10)])
  with pytest.raises(errors.InputError, match='another file'):
    load('shakespeare', tmp_path)
