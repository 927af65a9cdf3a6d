"""JPEGs in a tar, the owners' lists, a split, rounds and retrieval, in small."""

import numpy as np
import pytest

from tasks import experiment
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
      **{'clients_per_round': 2, 'image_size': 32, 'virtual_clients': 32},
      **{'encoder': 'mobilenet_v2', 'train': trained},
    )
    return photographs.measure(settings, tmp_path / trained)[0]

  whole, two_layers = virtual('all'), virtual('bottleneck')
  # 40 classes and the layer from 1,280 to 64, of 2.3 million parameters.
  expected = 4 * (40 * 64 + 1281 * 64)
  assert two_layers['bytes up a client'] == pytest.approx(expected, rel=0.01)
  assert whole['bytes up a client'] > 20 * expected
