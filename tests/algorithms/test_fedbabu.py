"""FedBABU compared with NumPy: clients do not train, send or receive class rows."""

import numpy as np
import pytest
import tensorflow as tf

from tests import registered, tiny
from tests.algorithms import numpy_fedavg, test_fedavg
from tff_xc import errors
from tff_xc.algorithms import registry
from tff_xc.round import personal, randomness

pytestmark = pytest.mark.usefixtures('tff_worker')


def test_three_rounds_equal_the_numpy_reference():
  process = tiny.process('fedbabu', local_training=test_fedavg.FULL_BATCH)
  # Weight 2 is the class table.
  test_fedavg.check_three_rounds(process, numpy_fedavg.Server('sgd', 1.0), frozen=(2,))
  assert not np.allclose(
    tiny.weights_after(process, 3, test_fedavg.COHORTS.__getitem__).encoder['kernel'],
    test_fedavg.plain_kernel(),
    atol=1e-4,
  )


@pytest.mark.parametrize('part', ['all', 'head'])
def test_a_client_fine_tunes_its_class_rows(part):
  given = {'model': tiny.model(), 'local_training': test_fedavg.FULL_BATCH}
  fixed, plain = (registry.get(n).made(**given) for n in ('fedbabu', 'fedavg'))
  before = fixed.model.init(tf.constant([0, 0]))
  seed = randomness.round_seed(tf.constant([0, 0]), 0)
  client = test_fedavg.COHORTS[0][0]
  after, expected = (personal.build(made, 3, part)(before, client, seed) for made in (fixed, plain))
  tiny.assert_same_weights(after, expected, 1e-6)
  assert not np.allclose(after.class_table, before.class_table)


def test_what_makes_no_sense_is_refused():
  for name in ('turbosvm', 'fedaws'):
    with pytest.raises(errors.InputError, match='server changes'):
      registered.algorithm(name, trainable='body')
