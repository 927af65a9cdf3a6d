"""The procedural data set glyphs: sizes, labels, determinism, bounds."""

import tracemalloc

import numpy as np
import pytest

from datasets.procedural import features, glyph_strokes, glyphs
from tff_xc import errors

SMALL = {
  'num_classes': 30,
  'num_clients': 12,
  'classes_per_client': 6,
  'examples_per_client': 15,
  'test_examples_per_class': 3,
}


def everything(pool):
  return pool.examples(np.arange(len(pool)))


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


def test_nothing_grows_with_the_number_of_classes():
  dataset = glyphs.load(num_classes=10**7, num_clients=50, max_test_examples=20)
  tracemalloc.start()
  labels = [dataset.train.labels(c) for c in dataset.train.client_ids]
  dataset.train.examples('hand07')
  y = dataset.test.labels
  _, peak = tracemalloc.get_traced_memory()
  tracemalloc.stop()
  assert peak < 10**7
  assert len(np.unique(labels)) == 50 * 10
  assert len(y) == 20
  assert y.max() > 10**6


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


def test_paper_may_be_white():
  ink, white = (everything(glyphs.load(**SMALL, white_paper=w).test).x for w in (0, 1))
  assert white.dtype == np.float32
  np.testing.assert_array_equal(white, ((255 - ink.astype(int)) / 255).astype('f'))
  assert np.median(white) == 1
  # Features have no paper.
  x, same = (
    everything(features.load_preset('features', **SMALL, white_paper=w).test).x for w in (0, 1)
  )
  np.testing.assert_array_equal(x, same)


def test_clients_of_random_sizes_have_all_their_classes():
  options = {**SMALL, 'examples_per_client': 8, 'examples_deviation': 8.0}
  clients = glyphs.load(**options).train.partition
  assert np.diff(clients.offsets).min() == options['classes_per_client']
