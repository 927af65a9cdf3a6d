"""Tests of `tff_xc.npz_headers`."""

import io
import zipfile

import numpy as np
import pytest

from tff_xc import npz_headers


def _header(shape, dtype='<f4', version=(1, 0)):
  file = io.BytesIO()
  write = getattr(np.lib.format, f'write_array_header_{version[0]}_0')
  write(file, {'shape': shape, 'fortran_order': False, 'descr': dtype})
  return file.getvalue()


def _archive(path, **members):
  with zipfile.ZipFile(path, 'w') as archive:
    for name, content in members.items():
      archive.writestr(f'{name}.npy', content)
  return path


def test_arrays_announce_their_bytes(tmp_path):
  path = tmp_path / 'a.npz'
  np.savez(path, x=np.zeros([3, 5], np.float32), y=np.int64(7), none=[])
  assert npz_headers.announced(path) == 60 + 8
  assert npz_headers.announced(path, {'x'}) == 60


@pytest.mark.parametrize('version', [(1, 0), (2, 0)])
def test_a_header_alone_announces_all(tmp_path, version):
  header = _header((2**40, 2**40), version=version)
  path = _archive(tmp_path / 'a.npz', x=header, y=b'no array')
  assert npz_headers.announced(path) == 4 * 2**80 + 8


@pytest.mark.parametrize(
  ('content', 'word'),
  [
    (_header((2, -3)), 'shape'),
    (_header((2,), '|O'), 'objects'),
    (b'\x93NUMPY\x02\x00\xff\xff\xff\x7f' + b' ' * 20_000, 'header'),
    (b'\x93NUMPY\x01\x00\x10\x00' + b'{' * 16, 'header'),
  ],
)
def test_bad_headers_are_refused(tmp_path, content, word):
  with pytest.raises(ValueError, match=word):
    npz_headers.announced(_archive(tmp_path / 'a.npz', x=content))
