"""The user's own files of sparse text, of any size."""

import numpy as np
import pytest

from datasets.readers import tables
from datasets.splits import deal as splits, making, rules
from datasets.xc import federated as xc
from tff_xc import errors


def write(path, lines=None, header='8 10 3'):
  lines = lines or [f'{i % 3},{(i + 1) % 3} {i}:1 9:0.5' for i in range(8)]
  path.write_text('\n'.join([header, *lines, '']))
  return path


def test_two_files_of_any_size(tmp_path):
  train = write(tmp_path / 'a.txt')
  test = write(tmp_path / 'b.txt', ['2 3:1', ' 4:1'], '2 10 3')
  parts = xc.read_own(train, test)
  assert [p.features.shape for p in parts] == [(8, 10), (2, 10)]
  assert [p.labels.nnz for p in parts] == [16, 1]
  dataset = xc.of_one_label('mine', *parts)
  assert dataset.num_classes == 3
  assert sum(dataset.train.partition.sizes) == 8  # Each example keeps one label.
  assert dataset.test.labels.shape == (2, 3)


def test_files_that_do_not_fit_are_refused(tmp_path):
  train, test = write(tmp_path / 'a.txt'), tmp_path / 'b.txt'
  for header, message in (
    ('2 11 3', '11 features'),
    ('2 10 4', '4 labels'),
    ('2 10', 'line 1'),
    ('2 10 1', 'and 1 label'),
    ('0 10 3', 'line 1: 0 examples'),
  ):
    write(test, ['0 1:1', '0 2:1'], header)
    with pytest.raises(errors.InputError, match=message):
      xc.read_own(train, test)
  for test, message in ((tmp_path / 'absent', 'no file'), (train, 'training')):
    with pytest.raises(errors.InputError, match=message):
      xc.read_own(train, test)


def make(tmp_path):
  """Writes a split like `launch.make_splits`. Returns the text file and the split."""
  random = np.random.default_rng(0)
  lines = [
    ','.join(map(str, sorted({i % 5, *random.integers(0, 5, i % 3)}))) + f' {i}:1 40:0.5'
    for i in range(40)
  ]
  path = write(tmp_path / 'mine_train.txt', lines, '40 41 5')
  settings = rules.get('dirichlet').settings(clients=4)
  request = rules.Request('dirichlet', settings, 3, test_fraction=0.25)
  made = making.make(request, path, tables.Columns())
  making.write(tmp_path / 'split', made)
  return path, tmp_path / 'split', made


def example_of(features):
  """Returns the numbers of examples, which their first features encode."""
  return features.toarray()[:, :40].argmax(axis=1).tolist()


def test_a_split_names_clients_labels_and_the_test(tmp_path):
  path, split, made = make(tmp_path)
  dataset = xc.load_own(path, splits.Choice(str(split)))
  lines = (split / 'federated_train.csv').read_text().splitlines()[1:]
  expected = {}
  for line in lines:
    user, image, label = line.split(',')
    expected.setdefault(user, []).append((int(image), int(label)))
  assert len(expected) == 4
  assert dataset.train.client_ids == sorted(expected)
  for name, rows in expected.items():
    x, y = dataset.train.examples(name)
    assert sorted(zip(example_of(x), y, strict=True)) == sorted(rows)
  held = made.test.tolist()
  x, y = dataset.test.examples(np.arange(len(dataset.test)))
  assert example_of(x) == held
  labels = xc.read((path,)).labels
  assert (y != labels[held]).nnz == 0  # The test examples keep all their labels.
  # Only the training examples count for the label counts.
  assert dataset.propensity.label_counts.sum() == labels.nnz - y.nnz
  # Without the folder's test, test examples can be held out.
  file = splits.Choice(str(split / 'federated_train.csv'))
  assert xc.load_own(path, file).test is None
  some = xc.load_own(path, file._replace(test_fraction=0.5))
  assert 0 < len(some.test) < len(lines)
  assert len(some.train.partition.numbers) == len(lines) - len(some.test)
  # A file of test examples replaces the folder's test.
  other = write(tmp_path / 'b.txt', ['2 3:1', '0 4:1'], '2 41 5')
  dataset = xc.load_own(path, splits.Choice(str(split), str(other)))
  assert len(dataset.test) == 2
  sample = splits.Choice(str(split), str(other), test_examples=1)
  assert len(xc.load_own(path, sample).test) == 1


@pytest.mark.parametrize(
  ('file', 'line', 'message'),
  [
    ('federated_train.csv', 'ann,2,0 2', 'frequent_lab'),
    ('federated_train.csv', 'ann,0,9', "'9'.*'0' in .*mine_tr"),
    ('test.csv', 'ann,3,', 'give that as --test_file'),
  ],
)
def test_splits_of_other_data_are_refused(tmp_path, file, line, message):
  path, split, _ = make(tmp_path)
  heading = (split / file).read_text().splitlines()[0]
  (split / file).write_text(f'{heading}\n{line}\n')
  with pytest.raises(errors.InputError, match=message):
    xc.load_own(path, splits.Choice(str(split)))
