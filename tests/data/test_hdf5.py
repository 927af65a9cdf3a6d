"""HDF5 files that refer to other files, or declare values that they do not contain."""

import zipfile

import h5py
import numpy as np
import pytest

from tff_xc import errors
from tff_xc.data import hdf5


def external_storage(file, other):
  file.create_dataset('a/x', (1,), 'S9', external=[(str(other), 0, 9)])


def external_link(file, other):
  file.create_group('a')['x'] = h5py.ExternalLink(str(other), '/secret')


def virtual(file, other):
  layout = h5py.VirtualLayout((4,), 'i8')
  layout[:] = h5py.VirtualSource(str(other), 'secret', (4,))
  file.create_virtual_dataset('a/x', layout)


def fill_values(file, other):
  file.create_dataset('a/x', (10**6,), 'f4', fillvalue=0.5)


def one_chunk(file, other):
  file.create_dataset('a/x', (10**6,), 'f4', chunks=(9,))[0] = 1


def announced(file, other):
  shape = (10**9, 10**6)
  file.create_dataset('a/x', shape, 'f4', chunks=(1, 1000))[0, 0] = 1


@pytest.mark.parametrize(
  ('make', 'said'),
  [
    (external_storage, 'another file'),
    (external_link, 'another file'),
    (virtual, 'another file'),
    (fill_values, 'not all of them'),
    (one_chunk, 'not all of them'),
    (announced, 'memory'),
  ],
)
@pytest.mark.parametrize('zipped', [False, True])
def test_what_is_refused(make, said, zipped, tmp_path):
  other, path = tmp_path / 'other.h5', tmp_path / 'mine.h5'
  with h5py.File(other, 'w') as file:
    file['secret'] = np.arange(4)
  with h5py.File(path, 'w') as file:
    make(file, other)
  if zipped:
    with zipfile.ZipFile(tmp_path / 'mine.keras', 'w') as archive:
      archive.write(path, 'model.weights.h5')
    path = tmp_path / 'mine.keras'
  with pytest.raises(errors.InputError, match=said) as e:
    hdf5.check_file(path)
  assert '/a/x' in str(e.value)


def test_what_is_in_the_file_is_read_and_damage_is_one_sentence(tmp_path):
  path = tmp_path / 'mine.h5'
  with h5py.File(path, 'w') as file:
    file['a/x'] = np.arange(10_000)
    file['a/empty'] = np.zeros([0, 3])
    file['a/text'] = ['a', 'b']
    file['a/scalar'] = 1.5
    file['a/nothing'] = h5py.Empty('f4')
    file['again'] = file['a']
    file['a/circle'] = file['a']
    file['soft'] = h5py.SoftLink('/a/x')
  hdf5.check_file(path)
  other = tmp_path / 'other'
  other.write_text('is left to its reader')
  hdf5.check_file(other)
  cut, named = tmp_path / 'cut.h5', tmp_path / 'named.h5'
  cut.write_bytes(path.read_bytes()[:20_000])
  with h5py.File(named, 'w') as file:
    file[b'\xff\xfe'] = np.arange(4)  # This name is not text.
  for path in (cut, named):
    with pytest.raises(errors.InputError, match='damaged'):
      hdf5.check_file(path)
