"""The table of what faults cost a run of one process."""

import subprocess
import sys

import pytest

from tests.launch import light


@pytest.mark.slow
def test_a_run_goes_on_after_each_fault_with_equal_numbers(tmp_path):
  done = subprocess.run(
    [sys.executable, '-m', 'tests.fault_seconds', str(tmp_path / 'faults')],
    cwd=light.ROOT,
    capture_output=True,
    text=True,
    timeout=600,
    check=False,
  )
  assert done.returncode == 0, done.stderr
  assert 'The numbers are equal.' in done.stdout
  for told in ('killed', 'cut short', 'other data'):
    assert told in done.stdout
