"""Runs for the tests of tables and pictures."""

import pytest

from tests.report import fake_runs
from tff_xc.report import run_files


@pytest.fixture
def runs(tmp_path):
  """Writes three seeds of FedSS with 80 negatives, and four other runs."""
  paths = [
    fake_runs.write_run(
      tmp_path / f'f{seed}',
      seed=seed,
      top1=top1,
      negatives=80,
      correction='negatives',
    )
    for seed, top1 in enumerate(fake_runs.TOP1)
  ]
  paths.append(
    fake_runs.write_run(
      tmp_path / 'none', top1=0.38, negatives=80, correction='none'
    )
  )
  paths.append(
    fake_runs.write_run(tmp_path / 'p', 'posonly', top1=0.09, rows=29.0)
  )
  paths.append(
    fake_runs.write_run(tmp_path / 'full', 'fullsoftmax', top1=0.6, rows=964.0)
  )
  paths.append(
    fake_runs.write_run(tmp_path / 'c', 'centralized', top1=0.7, rows=None)
  )
  return [run_files.read_run(path) for path in paths]
