"""A cache for each test of LEAF's sets."""

import pytest

from datasets import cache_folder


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
  monkeypatch.setenv(cache_folder.VARIABLE, str(tmp_path / 'cache'))
