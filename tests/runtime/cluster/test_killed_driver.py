"""A driver that is killed again and again ends with the numbers of one process."""

import pytest

from tests.launch import test_killed_training as killed
from tests.runtime.cluster import test_ray_rounds as rounds

pytest.importorskip('ray', reason='Ray is not installed: make venv-cluster')
pytestmark = pytest.mark.slow

KILLS = 20
# More than 32 clients, so that workers send sums of blocks.
COHORT = ('--num_classes=100', '--clients_per_round=40')


def test_a_driver_killed_at_random_ends_like_one_process(tmp_path):
  folder = tmp_path / 'cluster'
  start = ('launch.workers', 'start', '--workers=2', '--threads=1')
  try:
    rounds.run(folder, *start)
    killed.kill(
      tmp_path,
      KILLS,
      (*killed.FLAGS, *COHORT, '--runtime=cluster'),
      rounds.OWN,
      rounds.environment(folder),
    )
  finally:
    rounds.run(folder, 'launch.workers', 'stop')
