"""--encoder: the networks that tasks of images accept, and errors."""

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

from tasks import configuration, encoders, experiment
from tff_xc import errors
from tff_xc.report import run_files

OPTIONS = {option.name: option.default for option in encoders.OPTIONS}
OWN = """
import tensorflow as tf

def small(shape):
  return tf.keras.Sequential([
    tf.keras.Input(shape), tf.keras.layers.Flatten(), tf.keras.layers.Dense(3)])

def wrong(shape):
  return 3

def fails(shape):
  return shape[7]
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
  (tmp_path / 'mine_of_test.py').write_text(OWN)
  (tmp_path / 'broken_of_test.py').write_text('import no_such_module_here')
  (tmp_path / 'worse_of_test.py').write_text('1 / 0')
  monkeypatch.syspath_prepend(str(tmp_path))


def resolve(whole=False, **changes):
  changes = {'data_dir': 'mine', **changes}
  config = configuration.resolve('images', 'fedss', changes)
  return config if whole else config['options']


def test_only_options_that_apply_are_recorded():
  for changes, present, absent in (
    ({}, 'embedding_dim', 'norm_groups bottleneck encoder_weights'),
    ({'encoder': 'mobilenet_v3'}, 'norm_groups embedding_dim', ''),
    ({'encoder': 'mobilenet_v2', 'bottleneck': False}, '', 'embedding_dim'),
    ({'encoder': 'a.b:c'}, '', 'embedding_dim norm_groups'),
    ({'bottleneck': True}, 'embedding_dim', 'bottleneck'),
  ):
    found = set(resolve(**changes))
    assert {*present.split()} <= found
    assert not {*absent.split()} & found


def test_each_encoder_takes_the_images(own):
  for name, shape in (
    ('small', (8, 8)),
    ('mobilenet_v2', (32, 32, 3)),
    ('mine_of_test:small', (6, 7)),
  ):
    options = {**OPTIONS, 'encoder': name, 'embedding_dim': 3}
    encoder = encoders.build(options, shape)
    assert encoder.example_spec == tf.TensorSpec(shape, tf.uint8)
    seed = np.int32([0, 1])
    x = np.zeros([2, *shape], np.uint8)
    weights = encoder.init(seed), encoder.init_non_trainable(seed)
    found, _ = encoder.apply(*weights, x, False, None)
    assert found.shape == [2, 3]
  # The user's network has the same initial weights again.
  again = encoders.build(options, shape).init(None)['000/kernel']
  np.testing.assert_array_equal(again, encoder.init(None)['000/kernel'])


@pytest.mark.parametrize(
  ('name', 'message'),
  [
    ('nothing_of_test:f', "no module 'nothing_of_test'"),
    ('broken_of_test:f', "no module 'no_such_module_here'"),
    ('worse_of_test:f', 'ZeroDivisionError'),
    ('mine_of_test:none', "has no function 'none'"),
    ('mine_of_test:fails', 'IndexError'),
    ('mine_of_test:wrong', 'returned int'),
    ('mobilenet_v3', 'takes RGB images'),
  ],
)
def test_wrong_functions_and_images_are_one_sentence(own, name, message):
  with pytest.raises(errors.InputError, match=message) as refusal:
    encoders.build({**OPTIONS, 'encoder': name}, (32, 32))
  assert '\n' not in str(refusal.value)


def test_stored_images_are_an_eighth_larger_where_they_are_cropped():
  for side, stored in ((224, 256), (299, 342), (96, 110)):
    assert encoders.stored_side({'crop': 'random'}, side) == stored
    assert encoders.seen_side({'crop': 'scale'}, stored) == side
    assert encoders.stored_side({'crop': 'middle'}, side) == side
    assert encoders.seen_side({}, side) == side


def trained(config, path):
  """Trains, and returns metrics.csv without its times."""
  experiment.assemble(config).run(str(path))
  return run_files.read_run(path).metrics.drop(columns='seconds')


@pytest.mark.slow
@pytest.mark.parametrize('crop', ['random', 'scale'])
def test_cropped_runs_resume_with_the_same_digits(crop, in_process, built_once, tmp_path):
  random = np.random.default_rng(0)
  images = random.integers(0, 256, (24, 16, 16, 3), dtype=np.uint8)
  path, numbers = tmp_path / 'mine.npz', np.arange(24)
  np.savez(path, x=images, y=numbers % 4, client=numbers % 3)

  def config(rounds, rotate=5.0):
    return resolve(
      True,
      rounds=rounds,
      rotate=rotate,
      crop=crop,
      embedding_dim=4,
      negatives=1,
      clients_per_round=2,
      eval_every=1,
      data_dir=str(path),
    )

  straight = trained(config(2), tmp_path / 'straight')
  trained(config(1), tmp_path / 'resumed')
  pd.testing.assert_frame_equal(trained(config(2), tmp_path / 'resumed'), straight)
  seed, embedded = tf.constant([0, 1]), []
  for rotate in (5.0, 0.0):
    encoder = experiment.assemble(config(2, rotate)).algorithm.model.encoder
    weights = encoder.init(seed), encoder.init_non_trainable(seed)
    embedded.append(encoder.apply(*weights, tf.constant(images), True, seed)[0])
  assert np.abs(embedded[0] - embedded[1]).max() > 1e-4
