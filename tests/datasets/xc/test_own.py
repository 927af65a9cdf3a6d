"""One's own files of sparse text, of any size."""

import numpy as np
import pytest

from datasets.xc import clients as xc
from datasets.xc import own
from tff_xc import errors


def write(path, lines=None, header='8 10 3'):
  lines = lines or [f'{i % 3},{(i + 1) % 3} {i}:1 9:0.5' for i in range(8)]
  path.write_text('\n'.join([header, *lines, '']))
  return path


def test_two_files_of_any_size(tmp_path):
  train = write(tmp_path / 'a.txt')
  test = write(tmp_path / 'b.txt', ['2 3:1', ' 4:1'], '2 10 3')
  parts = own.read(train, test)
  assert [p.features.shape for p in parts] == [(8, 10), (2, 10)]
  assert [p.labels.nnz for p in parts] == [16, 1]
  dataset = xc.federated(
    'mine', *parts, label_seed=0, classes_per_client=1, clients_per_class=1
  )
  assert dataset.num_classes == 3
  assert sum(dataset.train.partition.sizes) == 8  # Each keeps one label.
  assert dataset.test.y.shape == (2, 3)


def test_a_share_is_held_out(tmp_path):
  path = write(tmp_path / 'a.txt')
  train, test = own.read(path, test_fraction=0.25, seed=1)
  assert (train.labels.shape[0], test.labels.shape[0]) == (6, 2)
  features = np.vstack([train.features.toarray(), test.features.toarray()])
  assert sorted(features[:, :8].argmax(axis=1)) == list(range(8))
  again = own.read(path, test_fraction=0.25, seed=1)[1]
  assert (again.features != test.features).nnz == 0
  assert own.read(path)[1] is None


@pytest.mark.parametrize(
  ('header', 'message'),
  [
    (
      '2 11 3',
      '11 features and 3 labels, and .* 10 and 3; give two files of one',
    ),
    ('2 10 4', '10 features and 4 labels, and .* 10 and 3'),
    ('2 10', "line 1: expected the header 'N D L'"),
    ('2 10 1', 'line 1: 1 labels; give a file with at least two'),
    ('0 10 3', 'line 1: 0 examples of 10 features'),
  ],
)
def test_files_that_do_not_fit_are_refused(tmp_path, header, message):
  train = write(tmp_path / 'a.txt')
  test = write(tmp_path / 'b.txt', ['0 1:1', '0 2:1'], header)
  with pytest.raises(errors.InputError, match=message):
    own.read(train, test)
  with pytest.raises(errors.InputError, match='no file'):
    own.read(train, tmp_path / 'absent.txt')
