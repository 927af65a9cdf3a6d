"""A cache for each test of LEAF's sets."""

import pytest

from datasets import parsed_cache


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
  monkeypatch.setenv(parsed_cache.VARIABLE, str(tmp_path / 'cache'))
