"""ImageNet-21k in folders, in tars, and as a list of names."""

import gzip
import random
import tarfile

import pytest

from datasets.imagenet21k import files
from tests.datasets.images import on_disk
from tff_xc import errors

NAMES = [
  f'n{c:08}/n{c:08}_{i}.JPEG' for c in (1, 20, 3, 100) for i in range(c % 7 + 2)
]


def folders(folder):
  return on_disk.write(folder / 'folders', NAMES)


def tars(folder):
  (folder / 'tars').mkdir()
  for synset in sorted(folders(folder).iterdir()):
    on_disk.tarred(synset, folder / 'tars' / f'{synset.name}.tar')
  return folder / 'tars'


def tar_of_tars(folder):
  with tarfile.open(folder / 'whole.tar', 'w') as whole:
    for tar in tars(folder).iterdir():
      whole.add(tar, tar.name)
  return folder / 'whole.tar'


def text():
  return ''.join(f'{n}\n' for n in random.Random(0).sample(NAMES, len(NAMES)))


def as_text(folder):
  (folder / 'list.txt').write_text(text())
  return folder / 'list.txt'


def as_windows_gzip(folder):
  with gzip.open(folder / 'list.txt.gz', 'wt', newline='') as file:
    file.write('./' + text().replace('\n', '\r\n./').removesuffix('./'))
  return folder / 'list.txt.gz'


@pytest.mark.parametrize(
  'write', [folders, tars, tar_of_tars, as_text, as_windows_gzip]
)
def test_every_form_has_the_same_images(tmp_path, write, monkeypatch):
  monkeypatch.setattr(files, '_BYTES', 100)
  found = files.read(write(tmp_path))
  assert list(found.ids) == sorted(NAMES)
  synsets = ['n00000001', 'n00000003', 'n00000020', 'n00000100']
  assert found.class_names == synsets
  assert [synsets[c] for c in found.labels] == [n[:9] for n in sorted(NAMES)]
  assert found.facts == {'images': len(NAMES), 'classes': 4}


@pytest.mark.parametrize(
  ('change', 'said'),
  [
    (lambda t: t + 'n1.JPEG\n', r'line 21: .n1\.JPEG. is no SYNSET/NAME'),
    (lambda t: t + '\nn1/2.JPEG\n', r'line 21: .. is no SYNSET'),
    (lambda t: t + 'n1/2.txt\n', r'line 21: .n1/2\.txt. is no SYNSET'),
    (lambda t: t + t.split('\n')[4], r'line 21: .* is in line 5 already'),
    (lambda t: '', 'has no lines'),
    (lambda t: t + '\udcff', 'cannot be read'),
  ],
)
def test_a_malformed_list_is_refused_in_a_sentence(tmp_path, change, said):
  path = as_text(tmp_path)
  path.write_text(change(path.read_text()), errors='surrogateescape')
  with pytest.raises(errors.InputError, match=said):
    files.read(path)


def test_a_missing_list_is_named(tmp_path):
  with pytest.raises(errors.InputError, match=r'list\.txt cannot be read'):
    files.read(tmp_path / 'list.txt')
