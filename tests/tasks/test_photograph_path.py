"""JPEGs in a tar, the owners' lists, a split, rounds and retrieval, in small."""

import io
import tarfile

import numpy as np
import pytest

from tasks import experiment
from tests import keras_photographs
from tests import photographs

SMALL = {'num_classes': 40, 'num_clients': 4, 'retrieval_classes': 10}


@pytest.mark.slow
def test_the_whole_path(tmp_path, in_process):
  photographs.render(tmp_path, SMALL)
  tiny = {'clients_per_round': 2, 'image_size': 32, 'local_steps': 1}
  fedss = photographs.config(tmp_path, 'fedss', 2, negatives=4, **tiny)
  found, summary = photographs.measure(fedss, tmp_path / 'fedss')
  assert set(summary['final']) == {'map@10', 'map@r', 'train_top1'}
  assert np.isfinite(list(summary['final'].values())).all()
  # At most once each, since all are kept.
  made = experiment.assemble(fedss)
  assert 0 < found['images decoded'] <= len(made.dataset.train.pool)
  assert found['evaluations'] < found['all']

  def virtual(trained):
    settings = photographs.config(
      *(tmp_path, 'fedavgm', 2),
      **{'clients_per_round': 2, 'image_size': 32, 'virtual_client_size': 32},
      **{'encoder': 'mobilenet_v2', 'trainable': trained},
    )
    return photographs.measure(settings, tmp_path / trained)[0]

  whole, two_layers = virtual('all'), virtual('bottleneck')
  # 40 classes and the layer from 1,280 to 64, of 2.3 million parameters.
  expected = 4 * (40 * 64 + 1281 * 64)
  assert two_layers['bytes up a client'] == pytest.approx(expected, rel=0.01)
  assert whole['bytes up a client'] > 20 * expected


@pytest.mark.slow
def test_images_are_decoded_in_the_rounds_that_are_to_decode(
  tmp_path, in_process
):
  photographs.render(tmp_path, SMALL)
  fedss = photographs.config(
    *(tmp_path, 'fedss', 2),
    **{'clients_per_round': 2, 'image_size': 32, 'local_steps': 1},
    **{'negatives': 4, 'encoder': 'small'},
  )
  warm, cold = (
    photographs.rounds_only(fedss, tmp_path / f'{kept}', kept)
    for kept in (True, False)
  )
  assert warm['images decoded'] == 0
  assert cold['images decoded'] >= 5 * cold['examples a round'] > 0


def test_the_path_is_shown_beside_keras():
  keys = ('processor', 'elapsed')
  norm = {f'{a}, {b}': 0.02 for a in ('training', 'both') for b in keys}
  norm['decoding, processor'] = 0.001
  before = {'GroupNorm': norm, 'BatchNorm': norm}
  after = {'GroupNorm': norm, 'BatchNorm': dict.fromkeys(norm, 0.04)}
  path = {
    **{'a round': 6.0, 'a round, processor': 8.0, 'examples a round': 400.0},
    **{'decoding, processor': 2.0, 'images decoded': 1_000},
    **{'rounds': 120.0, 'evaluations': 100.0},
  }
  warm = {**path, 'a round': 3.0}
  cold = {**path, 'a round': 4.0, 'a round, processor': 10.0}
  rows, shown = photographs.beside_keras(path, warm, cold, before, after)
  cells = {name: row for name, *row in rows}
  assert cells['decoding, processor'] == ['2.00', '1.00 – 1.00', '1.00 – 40.00']
  assert cells['both, processor'] == ['25.00', '20.00 – 20.00', '20.00 – 40.00']
  assert cells['training, processor'][0] == '20.00'
  assert cells['training, elapsed'][0] == '7.50'
  assert cells['both, elapsed'][0] == '10.00'
  assert 'decodes 500 images a second' in shown
  told = photographs.at_full_size(path, 5_000, 5_000, None)
  # 20 rounds of 3,200 images at 15 ms, and 65,502 at 10 ms.
  assert told.endswith('clients 16 minutes, an evaluation 11 minutes.')
  told = photographs.at_full_size(path, 5_000, 5_000, 25.0)
  assert told.endswith('rendering 10 minutes.')


def test_keras_reads_the_photographs_of_the_tar(tmp_path, monkeypatch):
  (tmp_path / 'sop').mkdir()
  with tarfile.open(tmp_path / 'sop' / 'images.tar', 'w') as tar:
    for number in range(100):
      data = photographs._jpeg(np.zeros([28, 28], np.uint8), number)
      member = tarfile.TarInfo(f'{number}.jpg')
      member.size = len(data)
      tar.addfile(member, io.BytesIO(data))
  data = keras_photographs.jpegs(str(tmp_path), 68)
  assert len(data) == 68
  batches = list(keras_photographs.batches_of(data))
  assert [x.shape for x, _ in batches] == [(32, 96, 96, 3)] * 2
  assert [n for _, numbers in batches for n in numbers] == list(range(64))
  steps = []
  found = keras_photographs.run('both', lambda x, n: steps.append(n), batches)
  assert set(found) == {'both, elapsed', 'both, processor'}
  assert len(steps) == 2
  # One step that is not counted and one that is, though there are three batches.
  monkeypatch.setattr(
    keras_photographs, 'training_step', lambda *_: lambda *_: steps.append(0)
  )
  found = keras_photographs.measure(str(tmp_path), 1, 40)
  assert len(steps) == 2 + 2 * (2 + 2)
  assert {len(times) for times in found.values()} == {6}
