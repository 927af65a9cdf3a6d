"""Pictures of splits of any size."""

import matplotlib.image
import numpy as np
import pytest
import scipy.sparse

from tff_xc.report import split_pictures


@pytest.mark.parametrize(
  'shape', [(1, 1), (3, 10), pytest.param((250, 1_000), marks=pytest.mark.slow)]
)
def test_class_counts(shape, tmp_path):
  counts = scipy.sparse.csr_matrix(np.random.default_rng(0).poisson(0.1, shape))
  names = [f'client {k} with a long name' for k in range(shape[0])]
  path = tmp_path / 'a.png'
  split_pictures.plot_class_counts(counts, names, path)
  height, width, _ = matplotlib.image.imread(path).shape
  assert 300 < height < 1000
  assert 300 < width < 1100
  several = {f'split {k}': counts for k in range(5 if len(names) > 9 else 1)}
  split_pictures.plot_panels(several, path)
  height, width, _ = matplotlib.image.imread(path).shape
  assert (height > 700) == (width > 1000) == (len(several) > 4)
  sizes = {name: np.arange(9) for name in several}
  split_pictures.plot_sizes(sizes, path)
  assert matplotlib.image.imread(path).shape[1] == len(several) * 600


@pytest.mark.parametrize(
  'size', [1, *(pytest.param(size, marks=pytest.mark.slow) for size in (30, 6_000))]
)
def test_ranks(size, tmp_path):
  values = np.arange(size) ** 2
  split_pictures.plot_clients(values, values // 2, tmp_path / 'a.png')
  split_pictures.plot_labels(values, None, tmp_path / 'b.png')
  split_pictures.plot_labels(values, values % 3, tmp_path / 'c.png')
  assert len(list(tmp_path.iterdir())) == 3
