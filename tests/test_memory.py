"""Tests of `tff_xc.memory`."""

import pytest

from tff_xc import errors
from tff_xc import memory


def _meminfo(folder, kilobytes=3):
  file = folder / 'meminfo'
  file.write_text(f'MemTotal: 9 kB\nMemAvailable:    {kilobytes} kB\n')
  return file


def test_a_container_has_less_free_than_the_machine(tmp_path):
  meminfo = _meminfo(tmp_path)
  assert memory.free_bytes(meminfo, tmp_path) == 3072
  (tmp_path / 'memory.current').write_text('100\n')
  (tmp_path / 'memory.stat').write_text('anon 7\ninactive_file 40\nslab 1\n')
  (tmp_path / 'memory.max').write_text('1100\n')
  assert memory.free_bytes(meminfo, tmp_path) == 1040
  (tmp_path / 'memory.current').write_text('1200\n')
  assert memory.free_bytes(meminfo, tmp_path) == 0
  (tmp_path / 'memory.max').write_text('max\n')
  assert memory.free_bytes(meminfo, tmp_path) == 3072


def test_a_small_file_that_unpacks_to_very_much_is_refused(monkeypatch):
  with pytest.raises(errors.InputError, match='900 TB'):
    memory.require(9 * 10**14, 'a.txt', 'mend it')
  assert memory.free_bytes() > 10**6
  monkeypatch.setattr(memory, 'free_bytes', lambda: 10**12)
  memory.require_unpacked(10**9, 1, 'a.npz', 'mend it')
  memory.require_unpacked(2 * 10**9, 10**7, 'a.npz', 'mend it')
  with pytest.raises(errors.InputError, match='200 times'):
    memory.require_unpacked(2 * 10**9 + 1, 10**7, 'a.npz', 'mend it')
  with pytest.raises(errors.InputError, match='with a copy'):
    memory.require_unpacked(6 * 10**11, 10**11, 'a.npz', 'mend it')
