"""Which images can be decoded."""

import numpy as np
import pytest

from datasets import cache_folder
from datasets import parsed_cache
from datasets.images import clients
from datasets.images import store as store_lib
from tests.datasets.images import on_disk

BAD = 7


class Check:
  """Finds image `BAD` damaged, notes what it is asked, and may be stopped."""

  def __init__(self, stop_after=10**9):
    self.asked, self._stop_after = [], stop_after

  def __call__(self, numbers):
    if len(self.asked) >= self._stop_after:
      raise KeyboardInterrupt
    self.asked += numbers.tolist()
    return [number != BAD for number in numbers.tolist()]


@pytest.fixture(name='store', params=['folder', 'tar'])
def _store(request, tmp_path, monkeypatch):
  monkeypatch.setattr(clients, '_BLOCK', 4)
  path = on_disk.classes(tmp_path / 'photos')
  if request.param == 'tar':
    path = on_disk.tarred(path, tmp_path / 'photos.tar')
  return store_lib.open_store(path)


def find(store, numbers, check):
  return clients.readable(store, np.array(numbers), check).tolist()


def test_a_check_that_is_stopped_goes_on(store):
  first, second = Check(stop_after=12), Check()
  with pytest.raises(KeyboardInterrupt):
    find(store, range(18), first)
  assert first.asked == list(range(12))
  assert find(store, range(18), second) == [i != BAD for i in range(18)]
  assert second.asked == [BAD, *range(12, 18)]


def test_splits_of_one_store_share_what_is_known(store):
  find(store, range(0, 18, 2), Check())
  check = Check()
  assert find(store, [9, 8, 7, 6], check) == [True, True, False, True]
  assert check.asked == [9, 7]


def test_a_file_that_changes_is_decoded_again(tmp_path):
  path = on_disk.classes(tmp_path / 'photos')
  find(store_lib.open_store(path), range(18), Check())
  (path / 'cat/0.jpg').write_bytes(on_disk.photograph(40))
  check = Check()
  find(store_lib.open_store(path), range(18), check)
  assert check.asked == [0, BAD]


def test_a_key_that_was_cut_does_no_harm(store):
  find(store, range(8), Check())
  file = parsed_cache.path(store.path, 'readable')
  file.write_bytes(file.read_bytes()[:-3])
  check = Check()
  find(store, range(10), check)
  assert check.asked == [6, BAD, 8, 9]
  again = Check()
  find(store, range(10), again)
  assert again.asked == [BAD]


def test_what_cannot_be_remembered_is_found_all_the_same(store, tmp_path):
  cache_folder.folder().mkdir(parents=True, exist_ok=True)
  parsed_cache.path(store.path, 'readable').mkdir()
  for _ in range(2):
    assert find(store, range(9), Check()) == [i != BAD for i in range(9)]


def test_a_long_check_is_told(store, monkeypatch, capsys):
  monkeypatch.setattr(clients, '_MANY', 10)
  find(store, range(9), Check())
  assert not capsys.readouterr().err
  find(store, range(8, 18), Check())
  assert not capsys.readouterr().err
  monkeypatch.setattr(clients, '_MANY', 1)
  find(store, [BAD], Check())
  said = capsys.readouterr().err
  assert 'decoding 1 images to find damaged ones' in said
  assert '--corrupt=fail leaves it out' in said
