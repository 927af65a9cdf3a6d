"""The precision of matrix products and convolutions: float32 or bfloat16.

With bfloat16 (8 bits of mantissa), both factors of a product and its result are rounded,
in the forward pass and in the gradients. Kernels accumulate in float32. All other
computations stay in float32: weights, sums, normalization, softmax, losses and optimizers.

Importing this module does not import TensorFlow.
"""

import contextlib
import contextvars
import functools
import os
import pathlib
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tff_xc
from tff_xc import errors
from tff_xc.lazy import tf

FLOAT32, BFLOAT16 = NAMES = 'float32', 'bfloat16'
# If this environment variable is 1, products are computed in float32 from numbers rounded
# to bfloat16. The results equal those of bfloat16 on any machine, but without the speed.
EMULATED = 'TFF_XC_EMULATE_BFLOAT16'
_CPU_FLAGS = 'amx_bf16', 'avx512_bf16'
_LEAST_CAPABILITY = 8, 0  # The lowest compute capability of a GPU with fast bfloat16.

_in_force = contextvars.ContextVar('precision', default=FLOAT32)


def in_force() -> str:
  """Returns the precision of products traced in this context, one of `NAMES`."""
  return _in_force.get()


@contextlib.contextmanager
def of_products(name: str) -> Iterator[None]:
  """Makes `product` compute in the precision `name`, one of `NAMES`, within the block."""
  if name not in NAMES:
    raise ValueError(f'unknown precision {name!r}: expected one of {NAMES}')
  token = _in_force.set(name)
  try:
    yield
  finally:
    _in_force.reset(token)


def factor(x: 'tf.Tensor') -> 'tf.Tensor':
  """Rounds float32 `x` to the precision in force; `x` can then be a factor of many products."""
  if in_force() == FLOAT32:
    return x
  rounded = tf.cast(x, tf.bfloat16)
  return tf.cast(rounded, tf.float32) if _is_emulated() else rounded


def product(
  function: Callable[..., Any], a: 'tf.Tensor', b: 'tf.Tensor', *args, **named
) -> 'tf.Tensor':
  """Returns `function(a, b, ...)`, float32, computed in the precision in force.

  `function` is `tf.matmul` or `tf.nn.conv2d`; a and b are float32 or results of `factor`.
  If the product is traced in bfloat16, its gradients are in bfloat16, too.
  """
  found = function(factor(a), factor(b), *args, **named)
  if in_force() == FLOAT32:
    return found
  return tf.cast(tf.cast(found, tf.bfloat16), tf.float32)


def check(devices: Sequence[str]) -> None:
  """Raises InputError if bfloat16 is slower than float32 on one of the devices.

  Args:
    devices: TensorFlow's names, such as '/device:GPU:0'; '' is the CPU.

  Raises:
    errors.InputError: bfloat16 is slower than float32 on one of the devices.
  """
  if os.environ.get(EMULATED) != '1' and (why := _why_slow(tuple(devices))):
    raise errors.InputError(
      f'--precision={BFLOAT16} would be slower than {FLOAT32} here: {why}; leave it'
      f' out, or set {EMULATED}=1 to get its numbers without its speed'
    )


def _is_emulated() -> bool:
  """Whether bfloat16 products are emulated: if `EMULATED` is 1, or if bfloat16 is slow here.

  Devices on which bfloat16 is slow may accumulate in bfloat16. Without the emulation,
  evaluating a run on such a device would give other numbers than on a fast device.
  """
  return os.environ.get(EMULATED) == '1' or bool(_why_slow(_default_devices()))


def _default_devices() -> tuple[str, ...]:
  gpus = range(len(tf.config.list_physical_devices('GPU')))
  return tuple(f'/device:GPU:{i}' for i in gpus) or ('',)


@functools.cache
def _why_slow(devices: Sequence[str]) -> str:
  """Returns why bfloat16 is slow on one of the devices, or '' if it is not."""
  gpus = tf.config.list_physical_devices('GPU')
  for device in devices:
    number = re.search(r'GPU:(\d+)', device)
    if number:
      details = tf.config.experimental.get_device_details(gpus[int(number[1])])
      capability = details.get('compute_capability', (0, 0))
      if capability < _LEAST_CAPABILITY:
        shown = '.'.join(map(str, capability))
        return f'GPU {number[1]} has compute capability {shown}, below 8.0'
    elif os.environ.get(tff_xc.ONEDNN) == '0':
      return f"{tff_xc.ONEDNN}=0 switches off TensorFlow's kernels for it"
    elif not {*_CPU_FLAGS} & _cpu_flags():
      return 'this CPU has neither AMX-BF16 nor AVX512-BF16'
  return ''


def _cpu_flags() -> set[str]:
  try:
    cpuinfo = pathlib.Path('/proc/cpuinfo').read_text()
  except OSError:
    return set()
  found = re.search(r'^flags\s*:(.*)$', cpuinfo, re.MULTILINE)
  return {*found[1].split()} if found else set()
