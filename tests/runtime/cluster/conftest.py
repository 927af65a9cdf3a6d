"""Workers that are threads of the test, and a runtime on them."""

import pytest

from tests.runtime.cluster import threads_crew
from tff_xc.runtime.cluster import context


@pytest.fixture(name='crew')
def _crew():
  made = threads_crew.ThreadsCrew()
  yield made
  made.close()


@pytest.fixture(name='runtime')
def _runtime(crew):
  return context.ClusterContext(crew, 60.0)
