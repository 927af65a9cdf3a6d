"""Procedural faces are deterministic, show the label in the mouth, and have CelebA's shape."""

import numpy as np
import pytest

from datasets.procedural import faces, glyph_strokes
from tff_xc import errors


def drawn(celebrity, smiling, seed=0):
  """Draws the photographs 0, 1, ... of a celebrity."""
  number = np.arange(len(smiling))
  person = np.broadcast_to(glyph_strokes.mix(seed, faces._PERSON, celebrity), len(number))
  photograph = glyph_strokes.mix(seed, faces._PHOTOGRAPH, celebrity, number)
  return faces.draw_faces(person, photograph, np.array(smiling, bool))


def test_an_image_does_not_depend_on_what_else_is_read():
  dataset = faces.load(celebrities=20)
  train = dataset.train.pool
  numbers = np.random.default_rng(0).permutation(len(train))[:12]
  x, y = train.examples(numbers)
  assert x.shape == (12, 84, 84, 3)
  assert (x.dtype, y.dtype) == (np.uint8, np.int32)
  assert len(np.unique(x.reshape(12, -1), axis=0)) == 12
  again = faces.load(celebrities=20).train.pool
  for number, image in zip(numbers[:4], x, strict=False):
    np.testing.assert_array_equal(again.read(np.array([number]))[0], image)
  other = faces.load(celebrities=20, seed=1).train.pool
  assert (other.read(numbers[:1]) != x[:1]).mean() > 0.5


def test_clients_are_celebrities_and_others_the_test():
  dataset = faces.load(celebrities=20)
  assert len(dataset.train.client_ids) == 18
  x, y = dataset.train.examples('celebrity0003')
  np.testing.assert_array_equal(x, drawn(3, y))
  x, y = dataset.test.examples(np.arange(5))  # The test has five photographs of each celebrity.
  np.testing.assert_array_equal(x, drawn(18, y))
  with pytest.raises(errors.InputError, match='celebrities is 9'):
    faces.load(celebrities=9)


def test_the_label_is_what_the_mouth_shows():
  smiling, not_smiling = (drawn(7, np.full(60, label)) for label in (1, 0))
  differs = (smiling != not_smiling).any(-1)
  shares = differs.mean((1, 2))
  assert (shares > 0).all()
  assert shares.max() < 0.1
  # The label changes only the lower half of the face, although faces are rotated and shifted.
  row, column = np.nonzero(differs.any(0))
  assert row.min() > 30
  assert 10 < column.min() < column.max() < 74
