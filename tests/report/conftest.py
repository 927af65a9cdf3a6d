"""Writes run directories for the tests of tables and pictures."""

import pytest

from tests.report import fake_runs
from tff_xc.report import run_files


@pytest.fixture
def runs(tmp_path):
  """Writes three runs of FedSS with 80 negatives and different seeds, and four other runs."""
  fedss = {'negatives': 80, 'correction': 'negatives'}
  made = [
    *({'seed': i, 'top1': v, **fedss} for i, v in enumerate(fake_runs.TOP1)),
    {'top1': 0.38, **fedss, 'correction': 'none'},
    {'algorithm': 'posonly', 'top1': 0.09, 'rows': 29.0},
    {'algorithm': 'fullsoftmax', 'top1': 0.6, 'rows': 964.0},
    {'algorithm': 'centralized', 'top1': 0.7, 'rows': None},
  ]
  return [
    run_files.read_run(fake_runs.write_run(tmp_path / f'f{i}', **keys))
    for i, keys in enumerate(made)
  ]
