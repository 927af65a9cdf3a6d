"""Placement on devices, tested on several logical CPUs instead of GPUs."""

import json
import textwrap

import pytest

from tests import processes
from tff_xc import errors
from tff_xc.runtime import registry

# This program runs in its own process, because logical devices must be set before TensorFlow
# starts.
_PROGRAM = """
import json
import sys
import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

cpu = tf.config.list_physical_devices('CPU')[0]
tf.config.set_logical_device_configuration(
  cpu, [tf.config.LogicalDeviceConfiguration()] * 3
)
from tests import tiny
from tff_xc.algorithms import fedss
from tff_xc.runtime import registry

context = registry.install('in_process', client_threads=2, device=sys.argv[1])

@tff.federated_computation(
  tff.FederatedType(tff.TensorType(np.float32, [4, 2]), tff.SERVER),
  tff.FederatedType(tff.TensorType(np.int32, [2]), tff.CLIENTS),
)
def rows(table, keys):
  row = tff.tensorflow.computation(lambda t, k: t[k])
  slices = tff.federated_select(
    keys, tff.federated_value(4, tff.SERVER), table, row
  )
  total = tff.tensorflow.computation(
    lambda data: tf.sqrt(
      tf.ensure_shape(data.batch(2).get_single_element(), [2, 2])
    )
  )
  found = tff.federated_map(total, slices)
  return found, tff.federated_sum(found)

with tf.device('CPU:1'):
  table = tf.reshape(tf.range(8.0), [4, 2])
keys = [np.array([i % 4, 1], np.int32) for i in range(12)]
found, total = rows(table, keys)
wanted = np.sqrt(np.arange(8.0).reshape(4, 2))
for each, key in zip(found, keys):
  np.testing.assert_allclose(each, wanted[key], rtol=1e-6)

process = fedss.build_fedss(
  model=tiny.model(), max_positives=3, negatives=4, **tiny.settings()
)
state, metrics = tiny.run(
  process, 3, lambda r: tiny.cohort([[0, 1], [2, 3, 3], [4, 5]], r)
)
short = lambda t: t.backing_device.rsplit('/device:', 1)[1]
print(json.dumps({
  'clients': sorted({short(each) for each in found}),
  'server': short(total),
  'loss': float(metrics['loss']),
  'weights': [float(tf.reduce_sum(t)) for t in tf.nest.flatten(state.weights)],
}))
"""


def _run(device: str) -> dict:
  done = processes.python('-c', textwrap.dedent(_PROGRAM), device, timeout=300)
  assert done.returncode == 0, done.stderr[-3000:]
  return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
def test_clients_are_spread_over_devices_and_the_server_has_the_first():
  spread = _run('cpu:1,cpu:2')
  assert spread['clients'] == ['CPU:1', 'CPU:2']
  assert spread['server'] == 'CPU:1'
  alone = _run('cpu:0')
  assert alone['clients'] == ['CPU:0']
  assert spread['loss'] == pytest.approx(alone['loss'], rel=1e-6)
  assert spread['weights'] == pytest.approx(alone['weights'], rel=1e-5)


_GPU = """
import tensorflow as tf
from tff_xc.runtime.in_process import context
config = tf.config.experimental
if {gpu}:
  context.visible_devices = lambda wanted: ['/device:GPU:0']
context.new_clients(1, '')
print(config.tensor_float_32_execution_enabled())
try:
  tf.random.normal([2])
  print('any digits')
except RuntimeError as error:
  print('determinism' in str(error))
"""


@pytest.mark.slow
@pytest.mark.parametrize(('gpu', 'said'), [(True, 'False True'), (False, 'True any digits')])
def test_a_gpu_computes_in_float32_and_repeats_its_digits(gpu, said):
  done = processes.python('-c', _GPU.format(gpu=gpu), timeout=300)
  assert ' '.join(done.stdout.split()) == said, done.stderr[-3000:]


def test_a_device_that_is_not_there_is_refused():
  for name, device, message in (
    ('in_process', 'gpu:7', "no 'gpu:7'; it sees cpu:0"),
    ('worker', 'gpu', 'CPU only'),
  ):
    with pytest.raises(errors.InputError, match=message):
      registry.install(name, device=device)
