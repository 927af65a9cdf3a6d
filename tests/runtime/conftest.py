"""The in-process runtime as the default context, for the tests that want it."""

import pytest
import tensorflow_federated as tff

from tff_xc.runtime import registry


@pytest.fixture
def in_process(tff_worker):
  """Installs the runtime for one test."""
  yield registry.install('in_process')
  tff.framework.set_default_context(tff_worker)
