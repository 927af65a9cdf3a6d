"""A tiny ImageNet-21k, as folders, as tars, and as a list of names."""

import gzip
import random
import tarfile

from tests.datasets import images_on_disk

NAMES = [f'n{c:08}/n{c:08}_{i}.JPEG' for c in (1, 20, 3, 100) for i in range(c % 7 + 2)]


def folders(folder):
  return images_on_disk.write(folder / 'folders', NAMES)


def tars(folder):
  """Writes the distributed files: a tar for each class, with images at the top level."""
  (folder / 'tars').mkdir()
  for synset in sorted(folders(folder).iterdir()):
    images_on_disk.tarred(synset, folder / 'tars' / f'{synset.name}.tar')
  (folder / 'tars' / '._n00000001.tar').write_bytes(b'a Mac leaves these')
  (folder / 'tars' / 'words.txt').write_text('n00000001 cat')
  return folder / 'tars'


def tar_of_tars(folder, suffix='.tar'):
  """Writes the fall release, which is one tar that contains the tar of each class."""
  path = folder / f'whole{suffix}'
  with tarfile.open(path, 'w:gz' if suffix == '.tar.gz' else 'w') as whole:
    for tar in tars(folder).iterdir():
      whole.add(tar, tar.name)
  return path


def text():
  return ''.join(f'{n}\n' for n in random.Random(0).sample(NAMES, len(NAMES)))


def as_text(folder):
  (folder / 'list.txt').write_text(text())
  return folder / 'list.txt'


def as_windows_gzip(folder):
  with gzip.open(folder / 'list.txt.gz', 'wt', newline='') as file:
    file.write('./' + text().replace('\n', '\r\n./').removesuffix('./'))
  return folder / 'list.txt.gz'
