"""JPEGs in a tar, the owners' lists, a split, rounds and retrieval, in small."""

import io
import subprocess
import sys
import tarfile

import numpy as np
import pytest
from PIL import Image

from datasets.procedural import glyphs
from tasks import experiment

_SIZES = {'num_classes': 40, 'num_clients': 4, 'retrieval_classes': 10}
_HEADER = 'image_id class_id super_class_id path\n'


def render(directory):
  """Writes DIRECTORY/sop: glyphs as JPEGs in images.tar, the lists, the split."""
  folder = directory / 'sop'
  folder.mkdir(parents=True)
  found = glyphs.load_preset('glyphs-sop', **_SIZES)
  with tarfile.open(folder / 'images.tar', 'w') as tar:
    for name, pool, first in (
      ('Ebay_train.txt', found.train.pool, 1),
      ('Ebay_test.txt', found.retrieval, 1 + found.num_classes),
    ):
      lines, number = [_HEADER], 0
      for images, labels in pool.blocks():
        for image, label in zip(images, labels, strict=True):
          path = f'glyph_final/{name[5:-4]}{number:06d}_0.JPG'
          data = io.BytesIO()
          Image.fromarray(image).resize((50, 40)).save(data, 'JPEG')
          member = tarfile.TarInfo(path)
          member.size = len(data.getvalue())
          tar.addfile(member, io.BytesIO(data.getvalue()))
          number += 1
          lines.append(f'{number} {first + label} 1 {path}\n')
      (folder / name).write_text(''.join(lines))
  command = [sys.executable, '-m', 'launch.make_splits', 'sop']
  subprocess.run(
    [*command, f'--input={folder}', f'--output={folder / "sop"}'],
    check=True,
    capture_output=True,
  )


@pytest.mark.slow
def test_the_whole_path(tmp_path, in_process):
  render(tmp_path)

  def run(algorithm, name, **changes):
    given = {
      'data_dir': str(tmp_path),
      'image_size': 32,
      'clients_per_round': 2,
    }
    given |= {'rounds': 2, 'eval_every': 2, **changes}
    config = experiment.resolve('sop', algorithm, given)
    return experiment.assemble(config).run(str(tmp_path / name))

  final = run('fedss', 'fedss', negatives=4, local_steps=1)['final']
  assert set(final) == {'map@10', 'map@r', 'train_top1'}
  assert np.isfinite(list(final.values())).all()
  sent = {}
  for trained in ('bottleneck', 'all'):
    given = {'virtual_client_size': 32, 'encoder': 'mobilenet_v2'}
    summary = run('fedavgm', trained, trainable=trained, **given)
    sent[trained] = summary['bytes_up_per_client_round']
  # 40 classes and the layer from 1,280 to 64, of 2.3 million parameters.
  expected = 4 * (40 * 64 + 1281 * 64)
  assert sent['bottleneck'] == pytest.approx(expected, rel=0.01)
  assert sent['all'] > 20 * expected
