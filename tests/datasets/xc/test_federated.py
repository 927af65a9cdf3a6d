"""Data sets of the Extreme Classification Repository as federated data."""

import numpy as np
import pytest
import scipy.sparse

from datasets import examples as examples_lib
from datasets.xc import federated as xc, sets as xc_sets
from tff_xc import errors

TRAIN = """\
6 7 5
0,3 1:0.5 6:2
 2:0.25
4 0:1 1:1
3 5:1
3 4:1
0,3,4 6:1
"""
TEST = '3 7 5\n1,2 1:0.5\n 2:1\n0 3:1\n'
COUNTS = xc_sets.Counts(6, 3, 7, 5)


def everything(pool):
  return pool.examples(np.arange(len(pool)))


def put(folder, **files):
  folder.mkdir(parents=True, exist_ok=True)
  for name, text in files.items():
    (folder / f'{name}.txt').write_text(text)


@pytest.fixture
def tiny(tmp_path):
  put(tmp_path / 'Eurlex', eurlex_train=TRAIN, eurlex_test=TEST)
  return tmp_path


def load(data_dir, name='eurlex-4k', **options):
  return xc.load(name, data_dir, **{'counts': COUNTS, **options})


def test_clients_are_classes_of_one_label_and_the_test_and_propensities_have_all(tiny):
  dataset = load(tiny)
  assert (dataset.name, dataset.num_classes) == ('eurlex-4k', 5)
  held = 0
  # Label sets of the examples that have labels.
  sets = [{0, 3}, {4}, {3}, {3}, {0, 3, 4}]
  for client_id in dataset.train.client_ids:
    numbers = dataset.train.numbers(client_id)
    x, y = dataset.train.examples(client_id)
    np.testing.assert_array_equal(y, dataset.train.labels(client_id))
    assert y.dtype == np.int32
    assert set(y) == {int(client_id.removeprefix('class/'))}
    assert all(y[0] in sets[i] for i in numbers)
    assert x.shape == (len(y), 7)
    held += len(y)
  assert held == 5
  x, _ = dataset.train.examples('class/3')
  first = list(dataset.train.numbers('class/3')).index(2)
  assert x[first].indices.tolist() == [5]
  x, y = everything(dataset.test)
  np.testing.assert_array_equal(y.indptr, [0, 2, 2, 3])
  np.testing.assert_array_equal(y.indices, [1, 2, 0])
  np.testing.assert_array_equal(x.indices, [1, 2, 3])
  found = dataset.propensity
  np.testing.assert_array_equal(found.label_counts, [2, 0, 0, 4, 2])
  assert (found.num_examples, found.a, found.b) == (6, 0.55, 1.5)


def test_labels_are_drawn_uniformly_and_by_their_own_seed():
  splits = np.array([0, 4, 4, 5] + [5 + 3 * i for i in range(1, 3001)])
  ids = np.concatenate([[5, 6, 7, 8], [2], np.tile([1, 4, 9], 3000)])
  label_sets = scipy.sparse.csr_matrix((np.ones(len(ids), bool), ids, splits))
  labels = examples_lib.sample_labels(label_sets, 0)
  assert labels.dtype == np.int32
  np.testing.assert_array_equal(labels[1:3], [-1, 2])
  counts = np.bincount(labels[3:])
  assert sorted(np.flatnonzero(counts)) == [1, 4, 9]
  assert (np.abs(counts[[1, 4, 9]] - 1000) < 110).all()
  np.testing.assert_array_equal(labels, examples_lib.sample_labels(label_sets, 0))
  assert (labels != examples_lib.sample_labels(label_sets, 1)).sum() > 1500


@pytest.mark.parametrize(
  ('name', 'folder', 'train', 'test'),
  [
    ('eurlex-4k', 'xc', 'eurlex_train', 'eurlex_test'),
    ('eurlex-4k', '.', 'eurlex_train', 'eurlex_test'),
    ('eurlex-4k', 'EURLex-4K', 'train', 'test'),
    ('eurlex-4k', 'xc/eurlex', 'train', 'test'),
    ('wiki10-31k', 'Wiki10', 'wiki10_train', 'wiki10_test'),
    ('amazoncat-13k', 'AmazonCat', 'amazonCat_train', 'amazonCat_test'),
    ('amazoncat-13k', 'amazoncat-13k', 'amazonCat_train', 'amazonCat_test'),
    ('amazon-670k', 'Amazon', 'amazon_train', 'amazon_test'),
    ('wikilshtc-325k', 'WikiLSHTC', 'wikiLSHTC_train', 'wikiLSHTC_test'),
    ('lf-amazontitles-131k', 'LF-AmazonTitles-131K', 'train', 'test'),
    ('lf-wikiseealsotitles-320k', 'LF-WikiSeeAlsoTitles-320K', 'train', 'test'),
  ],
)
def test_files_are_found_as_distributed(tmp_path, name, folder, train, test):
  put(tmp_path / folder, **{train: TRAIN, test: TEST})
  dataset = load(tmp_path, name)
  assert dataset.name == name
  assert dataset.propensity.a == xc_sets.SETS[name].a
  assert len(dataset.test) == 3


def test_a_pair_of_files_gives_the_same(tiny):
  folder = tiny / 'LF-AmazonTitles-131K'
  put(
    folder,
    trn_X_Xf='6 7\n1:0.5 6:2\n2:0.25\n0:1 1:1\n5:1\n4:1\n6:1\n',
    trn_X_Y='6 5\n0:1 3:1\n\n4:1\n3:1\n3:1\n0:1 3:1 4:1\n',
    tst_X_Xf='3 7\n1:0.5\n2:1\n3:1\n',
    tst_X_Y='3 5\n1:1 2:1\n\n0:1\n',
    filter_labels_test='0 1\n',
  )
  one, two = load(tiny), load(tiny, 'lf-amazontitles-131k')
  assert one.train.client_ids == two.train.client_ids
  for client_id in one.train.client_ids:
    (x, y), again = (d.train.examples(client_id) for d in (one, two))
    assert (x != again.x).nnz == 0
    np.testing.assert_array_equal(y, again.labels)
  for a, b in zip(everything(one.test), everything(two.test), strict=True):
    assert (a != b).nnz == 0
  counts = COUNTS._replace(train=7)
  with pytest.raises(errors.InputError, match=r'Xf.txt, line 1: .*expected 7'):
    load(tiny, 'lf-amazontitles-131k', counts=counts)
  (folder / 'tst_X_Y.txt').unlink()
  with pytest.raises(errors.InputError, match='no lf-amazontitles-131k in'):
    load(tiny, 'lf-amazontitles-131k')


def test_missing_files_are_told(tmp_path):
  def refused(match, *where):
    with pytest.raises(errors.InputError, match=match):
      load(*where)

  refused('no eurlex-4k in .*eurlex_train.txt', tmp_path)
  refused("'nope'; there are delicious", tmp_path, 'nope')
  refused('no eurlex-4k in', tmp_path / 'absent')


@pytest.mark.parametrize(
  ('change', 'message'),
  [
    ({'train': 7}, r'eurlex_train.txt, line 1: found 6 .* expected 7'),
    ({'test': 9}, r'eurlex_test.txt, line 1: found 3 .* expected 9'),
    ({'features': 8}, 'found 7 features, expected 8'),
    ({'labels': 4}, 'found 5 labels, expected 4'),
  ],
)
def test_other_counts_are_refused(tiny, change, message):
  with pytest.raises(errors.InputError, match=message):
    load(tiny, counts=COUNTS._replace(**change))
  with pytest.raises(errors.InputError, match='expected 15,539'):
    xc.load('eurlex-4k', tiny)


@pytest.mark.parametrize(
  ('name', 'unlabelled', 'clients'), [('delicious', (10, 4), 946), ('bibtex', (0, 0), 159)]
)
def test_real_sets(data_dir, name, unlabelled, clients):
  if not (data_dir / 'xc' / f'{name}_train.txt').is_file():
    pytest.skip(f'no {name} in {data_dir / "xc"}')
  dataset = xc.load(name, data_dir)
  counts = xc_sets.SETS[name].counts
  held = [len(dataset.train.labels(c)) for c in dataset.train.client_ids]
  assert len(held) == clients
  assert sum(held) == counts.train - unlabelled[0]
  assert (np.diff(dataset.test.labels.indptr) == 0).sum() == unlabelled[1]
