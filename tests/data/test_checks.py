"""The error for labels outside [0, n) names their client."""

import numpy as np
import pytest

from tff_xc import errors
from tff_xc.data import checks


def test_labels_in_range_pass():
  checks.check_labels(np.array([0, 4]), 5, 'client a')
  checks.check_labels(np.array([], np.int32), 5, 'client without examples')


@pytest.mark.parametrize('bad', [-1, 5])
def test_a_label_outside_names_client_and_label(bad):
  with pytest.raises(errors.InputError) as e:
    checks.check_labels(np.array([0, bad, 1]), 5, 'client Greek/07')
  for part in ('client Greek/07', f'label {bad} ', '[0, 5)', '1 of 3'):
    assert part in str(e.value)
