"""The procedural data set: sizes, labels, determinism, bounds."""

import tracemalloc

import numpy as np
import pytest
import scipy.stats

from datasets.procedural import glyph_strokes, glyphs
from tff_xc import errors
from tff_xc.measure import skew

SMALL = {
  'num_classes': 30,
  'num_clients': 12,
  'classes_per_client': 6,
  'examples_per_client': 15,
  'test_examples_per_class': 3,
}


def everything(pool):
  return pool.examples(np.arange(len(pool)))


def _sizes(dataset):
  labels = [dataset.train.labels(c) for c in dataset.train.client_ids]
  return (
    np.array([len(y) for y in labels]),
    np.array([len(np.unique(y)) for y in labels]),
    np.concatenate(labels),
  )


def test_clients_hold_what_was_asked():
  dataset = glyphs.load(**SMALL)
  assert dataset.num_classes == 30
  assert len(dataset.train.client_ids) == 12
  examples, classes, labels = _sizes(dataset)
  np.testing.assert_array_equal(examples, np.full(12, 15))
  np.testing.assert_array_equal(classes, np.full(12, 6))
  assert 0 <= labels.min() <= labels.max() < 30
  x, y = dataset.train.examples('hand03')
  assert x.shape == (15, 28, 28)
  assert x.dtype == np.uint8
  assert y.dtype == np.int32
  np.testing.assert_array_equal(y, dataset.train.labels('hand03'))


def test_test_has_every_class_and_retrieval_others():
  dataset = glyphs.load(**SMALL, retrieval_classes=8, retrieval_examples_per_class=2.5)
  x, y = everything(dataset.test)
  np.testing.assert_array_equal(y, np.repeat(np.arange(30), 3))
  rx, ry = everything(dataset.retrieval)
  np.testing.assert_array_equal(np.bincount(ry), [2, 3] * 4)
  images = np.concatenate([x, rx]).reshape(len(x) + len(rx), -1)
  assert len(np.unique(images, axis=0)) == len(images)
  none = glyphs.load(**{**SMALL, 'test_examples_per_class': 0})
  assert none.test is None and none.retrieval is None


def test_labels_name_what_is_drawn_and_retrieval_is_of_others():
  dataset = glyphs.load(**SMALL, variation=0, retrieval_classes=30)
  x, y = everything(dataset.test)
  first = [x[y == c][0] for c in range(30)]
  trained = {image.tobytes() for image in first}
  assert len(trained) == 30
  assert not trained & {x.tobytes() for x in everything(dataset.retrieval).x}
  for client_id in dataset.train.client_ids:
    for image, label in zip(*dataset.train.examples(client_id), strict=True):
      np.testing.assert_array_equal(image, first[label])


def test_the_same_for_the_same_seed_whatever_the_order():
  a, b, c = (glyphs.load(**SMALL, seed=seed) for seed in (3, 3, 1))
  ids = a.train.client_ids
  first = {c: a.train.examples(c) for c in ids}
  everything(b.test)
  for client in reversed(ids):
    np.testing.assert_array_equal(b.train.labels(client), first[client].y)
    np.testing.assert_array_equal(b.train.examples(client).x, first[client].x)
  np.testing.assert_array_equal(everything(a.test).x, everything(b.test).x)
  assert (a.train.labels(ids[0]) != c.train.labels(ids[0])).any()
  assert (everything(a.test).x != everything(c.test).x).any(axis=(1, 2)).all()


def test_no_drawing_and_no_hand_serves_twice(monkeypatch):
  calls = []
  draw = glyph_strokes.draw
  monkeypatch.setattr(glyph_strokes, 'draw', lambda *k, **kw: calls.append(k) or draw(*k, **kw))
  dataset = glyphs.load(**SMALL, retrieval_classes=5)
  for client_id in dataset.train.client_ids:
    dataset.train.examples(client_id)
  everything(dataset.test)
  everything(dataset.retrieval)
  classes, hands, drawings = (np.concatenate(k) for k in zip(*calls, strict=True))
  assert len(classes) == 12 * 15 + 30 * 3 + 5 * 5
  assert len(np.unique(classes)) == 30 + 5
  assert len(np.unique(hands)) == 12 + 30 * 3 + 5 * 5
  assert len(np.unique(drawings)) == len(drawings)
  assert not np.isin(hands, drawings).any()


def test_a_bounded_test_is_a_sample():
  whole = everything(glyphs.load(**SMALL).test)
  x, y = everything(glyphs.load(**SMALL, max_test_examples=40).test)
  assert len(y) == 40
  assert (np.diff(y) >= 0).all()
  assert len(np.unique(y)) > 20
  known = {image.tobytes(): label for image, label in zip(*whole, strict=True)}
  assert [known[image.tobytes()] for image in x] == y.tolist()


def test_landmarks_has_the_shape_of_the_paper():
  dataset = glyphs.load_preset('glyphs-landmarks')
  examples, classes, labels = _sizes(dataset)
  assert (dataset.num_classes, len(examples)) == (2028, 1262)
  assert abs(examples.sum() - 164_172) < 500
  assert abs(classes.mean() - 90) < 0.5
  assert examples.min() == 30
  assert 390 < classes.max() <= 399
  assert np.median(classes) < 50
  assert len(np.unique(labels)) == 2028


def test_sop_has_the_shape_of_the_paper():
  dataset = glyphs.load_preset('glyphs-sop', retrieval_classes=200)
  examples, classes, labels = _sizes(dataset)
  assert dataset.num_classes == len(np.unique(labels)) == 11_318
  np.testing.assert_array_equal(examples, np.full(596, 100))
  np.testing.assert_array_equal(classes, np.full(596, 20))
  assert abs(len(dataset.retrieval.y) / 200 - 5.35) < 0.01
  assert glyphs.PRESETS['glyphs-sop']['retrieval_classes'] == 11_316


@pytest.mark.slow
def test_imagenet21k_has_the_shape_of_the_paper():
  dataset = glyphs.load_preset('glyphs-imagenet21k', max_test_examples=50)
  assert dataset.num_classes == 21_841
  assert len(dataset.train.client_ids) == 25_691
  y = dataset.train.labels('hand25690')
  assert (len(y), len(np.unique(y))) == (400, 20)
  assert everything(dataset.test).x.shape == (50, 28, 28)


def test_nothing_grows_with_the_number_of_classes():
  dataset = glyphs.load(num_classes=10**7, num_clients=50, max_test_examples=20)
  tracemalloc.start()
  labels = [dataset.train.labels(c) for c in dataset.train.client_ids]
  dataset.train.examples('hand07')
  y = dataset.test.y
  _, peak = tracemalloc.get_traced_memory()
  tracemalloc.stop()
  assert peak < 10**7
  assert len(np.unique(labels)) == 50 * 10
  assert len(y) == 20
  assert y.max() > 10**6


@pytest.mark.parametrize('n', [2, 10, 11])
def test_few_classes(n):
  dataset = glyphs.load(num_classes=n, num_clients=3, classes_per_client=n, examples_per_client=n)
  for c in dataset.train.client_ids:
    np.testing.assert_array_equal(np.sort(dataset.train.labels(c)), np.arange(n))


@pytest.mark.parametrize(
  ('name', 'values'),
  [
    ('num_classes', (1, -5, 2**31)),
    ('num_clients', (0,)),
    ('classes_per_client', (31, 0)),
    ('classes_range', ((7, 9), (0, 9), (2, 31))),
    ('examples_per_client', (5, 10**8)),
    ('retrieval_classes', (-1, 10**8)),
    ('retrieval_examples_per_class', (0.5,)),
    ('image_size', (4,)),
    ('variation', (-0.1, float('nan'))),
    ('class_shares', (((3, 0.5), (6, 0.5)),)),
  ],
)
def test_absurd_numbers(name, values):
  for value in values:
    word = 'with shares is 9' if name == 'class_shares' else name
    with pytest.raises(errors.InputError, match=word):
      glyphs.load(**{**SMALL, name: value})


# 0.1 a class.
DIRICHLET = {
  'num_classes': 60,
  'num_clients': 100,
  'examples_per_client': 240,
  'concentration': 6.0,
}


def _counts(dataset):
  owners, labels = dataset.train.owned_labels()
  return skew.class_counts(owners, labels, (100, 60)).toarray()


def _alike(counts):
  """Returns how probably two examples of a client have one class, without bias."""
  sizes = counts.sum(axis=1)
  return (counts * (counts - 1)).sum(axis=1) / (sizes * (sizes - 1))


def test_dirichlet_clients_are_skewed_within_and_unequal_whatever_their_classes():
  counts = _counts(glyphs.load(**DIRICHLET, size_deviation=1.2))
  sizes = counts.sum(axis=1)
  assert (counts.sum(axis=0) == 400).all()
  np.testing.assert_allclose(np.log(sizes).std(), 1.2, rtol=0.2)
  assert abs(scipy.stats.spearmanr(sizes, _alike(counts))[0]) < 0.3
  # FedIR's weights p / q_k of a client's examples, whose mean is p's share of its
  # classes.
  q = counts / sizes[:, np.newaxis]
  weights = np.divide(1 / 60, q, out=np.zeros(q.shape), where=q > 0)
  mean = (q * weights).sum(axis=1)
  std = np.sqrt((q * weights**2).sum(axis=1) - mean**2)
  assert 2.3 < np.average(std / mean, weights=sizes) < 3.4
  # Clients of a few classes in equal parts have none of this: the larger, the more.
  ends = {'classes_range': (2, 40), 'classes_per_client': 10}
  shape = {n: v for n, v in DIRICHLET.items() if n != 'concentration'}
  other = _counts(glyphs.load(**shape, **ends))
  assert scipy.stats.spearmanr(other.sum(axis=1), _alike(other))[0] < -0.9


def test_dirichlet_clients_are_equal_by_default_and_the_same_for_a_seed():
  whole = _counts(glyphs.load(**DIRICHLET))
  assert (whole.sum(axis=1) == 240).all()
  np.testing.assert_array_equal(whole, _counts(glyphs.load(**DIRICHLET)))
  other = _counts(glyphs.load(**DIRICHLET, seed=1))
  assert (other != whole).any(axis=1).all()
  # Total concentration: of very much all clients are alike, of none of one class.
  alike, single = (_counts(glyphs.load(**{**DIRICHLET, 'concentration': c})) for c in (1e6, 0))
  assert np.median(_alike(alike)) < 1.1 / 60
  assert np.median(_alike(single)) == 1
  # Examples are in no order.
  first = glyphs.load(**DIRICHLET).train.labels('hand00')
  assert (np.diff(first) < 0).sum() > 50


@pytest.mark.parametrize(
  ('given', 'message'),
  [
    ({'concentration': 1.0, 'classes_range': (1, 9)}, 'classes_range and conc'),
    ({'concentration': 1.0, 'consecutive_classes': True}, 'consecutive_classes'),
    ({'concentration': 1.0, 'examples_deviation': 2.0}, 'examples_deviation'),
    ({'size_deviation': 1.0}, 'with a concentration; give that'),
    ({'concentration': -1.0}, 'concentration is -1.0'),
    ({'concentration': 1.0, 'size_deviation': 11.0}, 'size_deviation is 11.0'),
  ],
)
def test_clients_are_dealt_by_one_rule(given, message):
  with pytest.raises(errors.InputError, match=message):
    glyphs.load(**SMALL, **given)


def test_classes_are_drawn_by_their_shares():
  shares = {'class_shares': ((2, 0.75), (6, 0.25)), 'num_classes': 8}
  dataset = glyphs.load(**{**SMALL, **shares, 'examples_per_client': 500})
  labels = dataset.train.owned_labels()[1]
  shares = np.bincount(labels, minlength=8) / len(labels)
  np.testing.assert_allclose(shares[:2], 0.375, atol=0.02)
  np.testing.assert_allclose(shares[2:], 0.25 / 6, atol=0.01)
  held = [len(set(dataset.train.labels(c))) for c in dataset.train.client_ids]
  assert min(held) == 8
  assert len(np.unique(dataset.test.read(np.arange(24)), axis=0)) == 24


def test_paper_may_be_white():
  ink, white = (everything(glyphs.load(**SMALL, white_paper=w).test).x for w in (0, 1))
  assert white.dtype == np.float32
  np.testing.assert_array_equal(white, ((255 - ink.astype(int)) / 255).astype('f'))
  assert np.median(white) == 1


def test_the_shape_of_femnist():
  dataset = glyphs.load_preset('glyphs-femnist')
  sizes = dataset.train.partition.sizes
  assert len(sizes) == 3195
  np.testing.assert_allclose([sizes.mean(), sizes.std()], [226.8, 88.9], 0.01)
  assert sizes.min() >= 1
  for y in (dataset.train.pool.y, dataset.test.y):
    counts = np.bincount(y, minlength=62) / len(y)
    groups = [counts[:10].sum(), counts[10:36].sum(), counts[36:].sum()]
    np.testing.assert_allclose(groups, [0.495, 0.271, 0.234], atol=0.02)
  assert len(dataset.test) == 5000
  x, _ = dataset.train.examples('hand0007')
  assert x.dtype == np.float32
  assert (x.min(), x.max()) == (0, 1)
