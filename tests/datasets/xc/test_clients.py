"""Sets of the Extreme Classification Repository as federated data."""

import gzip

import numpy as np
import pytest
import scipy.sparse

from datasets.splits import by_class
from datasets.xc import clients as xc
from datasets.xc import sets as xc_sets
from datasets.xc import text as xc_text
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


def test_clients_are_classes_and_examples_keep_one_label(tiny):
  dataset = load(tiny)
  assert (dataset.name, dataset.num_classes) == ('eurlex-4k', 5)
  held = 0
  # Of the examples that have labels.
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
  assert {'class/3'} <= set(dataset.train.client_ids)
  x, _ = dataset.train.examples('class/3')
  first = list(dataset.train.numbers('class/3')).index(2)
  assert x[first].indices.tolist() == [5]


def test_the_test_keeps_all_labels_and_unlabelled_examples(tiny):
  x, y = everything(load(tiny).test)
  np.testing.assert_array_equal(y.indptr, [0, 2, 2, 3])
  np.testing.assert_array_equal(y.indices, [1, 2, 0])
  np.testing.assert_array_equal(x.indices, [1, 2, 3])


def test_propensities_count_all_labels_and_all_examples(tiny):
  found = load(tiny).propensity
  np.testing.assert_array_equal(found.label_counts, [2, 0, 0, 4, 2])
  assert (found.num_examples, found.a, found.b) == (6, 0.55, 1.5)


def test_labels_are_drawn_uniformly_and_by_their_own_seed():
  splits = np.array([0, 4, 4, 5] + [5 + 3 * i for i in range(1, 3001)])
  ids = np.concatenate([[5, 6, 7, 8], [2], np.tile([1, 4, 9], 3000)])
  label_sets = scipy.sparse.csr_matrix((np.ones(len(ids), bool), ids, splits))
  labels = xc.sample_labels(label_sets, 0)
  assert labels.dtype == np.int32
  np.testing.assert_array_equal(labels[1:3], [-1, 2])
  counts = np.bincount(labels[3:])
  assert sorted(np.flatnonzero(counts)) == [1, 4, 9]
  assert (np.abs(counts[[1, 4, 9]] - 1000) < 110).all()
  np.testing.assert_array_equal(labels, xc.sample_labels(label_sets, 0))
  assert (labels != xc.sample_labels(label_sets, 1)).sum() > 1500


def clients_of(grouping):
  return {
    name: grouping.of_client(k).tolist()
    for k, name in enumerate(grouping.client_ids)
  }


LABELS = np.array([7, 2, -1, 2, 0, 7, 7, 2, 7, 11])


def test_grouping_by_class():
  assert clients_of(by_class.partition(LABELS, 12)) == {
    'class/00': [4],
    'class/02': [1, 3, 7],
    'class/07': [0, 5, 6, 8],
    'class/11': [9],
  }


def test_grouping_a_class_in_shares():
  assert clients_of(by_class.partition(LABELS, 12, clients_per_class=3)) == {
    'class/00/0': [4],
    'class/02/0': [1],
    'class/02/1': [3],
    'class/02/2': [7],
    'class/07/0': [0, 8],
    'class/07/1': [5],
    'class/07/2': [6],
    'class/11/0': [9],
  }


def test_grouping_shares_of_several_classes():
  labels = np.random.default_rng(0).integers(0, 12, 300)
  found = by_class.partition(
    labels, 12, classes_per_client=5, clients_per_class=4, seed=1
  )
  clients = clients_of(found)
  assert len(clients) == 4 * 3
  assert list(clients)[:2] == ['classes/00/0', 'classes/00/1']
  assert sorted(found.numbers) == list(range(300))
  groups = {
    name: frozenset(labels[numbers]) for name, numbers in clients.items()
  }
  assert sorted(map(len, groups.values())) == [2] * 4 + [5] * 8
  for share in range(4):
    mine = [g for name, g in groups.items() if name.endswith(f'/{share}')]
    assert sorted(label for group in mine for label in group) == list(range(12))
  assert len(set(groups.values())) > 9  # Grouped anew for each share.
  for label in range(12):
    counts = [
      np.count_nonzero(labels[numbers] == label) for numbers in clients.values()
    ]
    counts = [c for c in counts if c]
    assert len(counts) == 4
    assert max(counts) - min(counts) <= 1


def test_grouping_several_classes():
  seen = set()
  for seed in range(20):
    clients = clients_of(
      by_class.partition(LABELS, 12, classes_per_client=3, seed=seed)
    )
    assert list(clients) == ['classes/00', 'classes/01']
    first, second = (set(LABELS[n]) for n in clients.values())
    assert (len(first), len(second)) == (3, 1)
    assert first | second == {0, 2, 7, 11}
    assert all(n == sorted(n) for n in clients.values())
    assert sum(map(len, clients.values())) == 9
    seen |= second
  assert len(seen) > 1
  again = [
    by_class.partition(LABELS, 12, classes_per_client=3, seed=5).numbers
    for _ in range(2)
  ]
  np.testing.assert_array_equal(*again)


def test_grouping_nothing():
  grouping = by_class.partition(np.array([-1, -1]), 12)
  assert grouping.client_ids == []
  np.testing.assert_array_equal(grouping.offsets, [0])


def test_numbers_of_classes_and_clients_are_checked(tiny):
  for options in ({'classes_per_client': 0}, {'classes_per_client': 6}):
    with pytest.raises(errors.InputError, match='classes_per_client is'):
      load(tiny, **options)
  assert len(load(tiny, classes_per_client=5).train.client_ids) == 1


PLACES = [
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
]


@pytest.mark.parametrize(('name', 'folder', 'train', 'test'), PLACES)
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
    np.testing.assert_array_equal(y, again.y)
  for a, b in zip(everything(one.test), everything(two.test), strict=True):
    assert (a != b).nnz == 0
  counts = xc_sets.dataclasses.replace(COUNTS, train=7)
  with pytest.raises(errors.InputError, match=r'Xf.txt, line 1: .*expected 7'):
    load(tiny, 'lf-amazontitles-131k', counts=counts)
  (folder / 'tst_X_Y.txt').unlink()
  with pytest.raises(errors.InputError, match=r'tst_X_Y.txt is missing'):
    load(tiny, 'lf-amazontitles-131k')


def test_the_folder_itself_and_packed_files(tmp_path):
  folder = tmp_path / 'Wiki10-31K'
  folder.mkdir()
  for name, text in (('train', TRAIN), ('test', TEST)):
    (folder / f'{name}.txt.gz').write_bytes(gzip.compress(text.encode()))
  assert load(folder, 'wiki10-31k').num_classes == 5


def test_missing_files_are_told(tmp_path):
  with pytest.raises(
    errors.InputError, match=r'no eurlex-4k in .*eurlex_train.txt, and for a f'
  ):
    load(tmp_path)
  with pytest.raises(errors.InputError, match="'nope'; there are delicious"):
    load(tmp_path, 'nope')
  with pytest.raises(errors.InputError, match='no eurlex-4k in'):
    load(tmp_path / 'absent')
  put(tmp_path / 'eurlex', eurlex_train=TRAIN)
  with pytest.raises(
    errors.InputError, match=r'only a part of eurlex-4k: eurlex_test.txt is mis'
  ):
    load(tmp_path)


@pytest.mark.parametrize(
  ('change', 'message'),
  [
    ({'train': 7}, r'eurlex_train.txt, line 1: found 6 examples, expected 7'),
    ({'test': 9}, r'eurlex_test.txt, line 1: found 3 examples, expected 9'),
    ({'features': 8}, 'found 7 features, expected 8'),
    ({'labels': 6}, 'found 5 labels, expected 6'),
  ],
)
def test_other_counts_are_refused(tiny, change, message):
  counts = xc_sets.dataclasses.replace(COUNTS, **change)
  with pytest.raises(errors.InputError, match=message):
    load(tiny, counts=counts)
  with pytest.raises(errors.InputError, match='expected 15,539'):
    xc.load('eurlex-4k', tiny)


@pytest.mark.parametrize(
  ('name', 'unlabelled', 'clients'),
  [('delicious', (10, 4), 946), ('bibtex', (0, 0), 159)],
)
def test_real_sets(data_dir, name, unlabelled, clients):
  if not (data_dir / 'xc' / f'{name}_train.txt').is_file():
    pytest.skip(f'no {name} in {data_dir / "xc"}')
  before = sorted((data_dir / 'xc').iterdir())
  dataset = xc.load(name, data_dir)
  counts = xc_sets.SETS[name].counts
  assert dataset.num_classes == counts.labels
  assert len(dataset.train.client_ids) == clients
  held = [len(dataset.train.labels(c)) for c in dataset.train.client_ids]
  assert sum(held) == counts.train - unlabelled[0]
  x, y = everything(dataset.test)
  assert x.shape == (counts.test, counts.features)
  assert y.shape == (counts.test, counts.labels)
  assert (np.diff(y.indptr) == 0).sum() == unlabelled[1]
  found = dataset.propensity
  assert found.num_examples == counts.train
  table = xc_text.read(data_dir / 'xc' / f'{name}_train.txt')
  assert found.label_counts.sum() == table.labels.nnz
  assert sorted((data_dir / 'xc').iterdir()) == before
