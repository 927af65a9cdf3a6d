"""Kernels of support vector machines, as scikit-learn defines them.

gamma and coef0 are 1 (TurboSVM-FL, Table 12). Values are float64.
"""

import dataclasses

import tensorflow as tf

from tff_xc.algorithms import svm_settings

LINEAR = 'linear'


@dataclasses.dataclass(frozen=True)
class Kernel:
  """A kernel K(x, z), computed from inner products.

  polynomial: (x . z + 1)^degree; rbf: exp(-|x - z|^2); sigmoid: tanh(x . z + 1),
  which is not positive definite.

  Attributes:
    kind: one of `svm_settings.KERNELS`.
    degree: of the polynomial.
  """

  kind: str = LINEAR
  degree: int = 2

  def __post_init__(self):
    if self.kind not in svm_settings.KERNELS:
      known = ', '.join(svm_settings.KERNELS)
      raise ValueError(f'unknown kernel {self.kind!r}: expected {known}')
    if self.degree < 1:
      raise ValueError(f'the degree is {self.degree}')

  @property
  def ignores_translation(self) -> bool:
    """Whether a machine stays the same if all points move by one vector."""
    return self.kind in (LINEAR, 'rbf')

  def __call__(
    self, products: tf.Tensor, norms: tf.Tensor, other_norms: tf.Tensor
  ) -> tf.Tensor:
    """Returns the kernel's values, in the shape of `products`.

    Args:
      products: inner products of points x and z.
      norms: |x|^2, broadcast against the products.
      other_norms: |z|^2, likewise.
    """
    if self.kind == LINEAR:
      return products
    if self.kind == 'polynomial':
      return tf.pow(products + 1.0, float(self.degree))
    if self.kind == 'rbf':
      return tf.exp(-tf.nn.relu(norms + other_norms - 2.0 * products))
    return tf.tanh(products + 1.0)

  def of_itself(self, norms: tf.Tensor) -> tf.Tensor:
    """Returns K(x, x) for points of these |x|^2."""
    return self(norms, norms, norms)
