"""ImageNet-21k in folders, in tars, and as a list of names."""

import pytest

from datasets.imagenet21k import files
from tests.datasets.imagenet21k import on_disk
from tff_xc import errors


@pytest.mark.parametrize(
  'write',
  [
    on_disk.folders,
    on_disk.tars,
    on_disk.tar_of_tars,
    on_disk.as_text,
    on_disk.as_windows_gzip,
  ],
)
def test_every_form_has_the_same_images(tmp_path, write, monkeypatch):
  monkeypatch.setattr(files, '_LINES', 3)
  found = files.read(write(tmp_path))
  assert list(found.ids) == sorted(on_disk.NAMES)
  synsets = ['n00000001', 'n00000003', 'n00000020', 'n00000100']
  assert found.class_names == synsets
  assert [synsets[c] for c in found.labels] == [
    n[:9] for n in sorted(on_disk.NAMES)
  ]
  assert found.facts == {'images': len(on_disk.NAMES), 'classes': 4}


@pytest.mark.parametrize(
  ('change', 'said'),
  [
    (lambda t: t + 'n1.JPEG\n', r'line 21: .n1\.JPEG. is no SYNSET/NAME'),
    (lambda t: t + '\n \nn1.JPEG', r'line 23: .n1\.JPEG. is no SYNSET'),
    (lambda t: t + '\n' + t.split('\n')[4], r'line 22: .* in line 5 already'),
    (lambda t: t + 'n1/2.txt\n', r'line 21: .n1/2\.txt. is no SYNSET'),
    (lambda t: t + t.split('\n')[4], r'line 21: .* is in line 5 already'),
    (lambda t: '', 'has no lines'),
    (lambda t: t + '\udcff', 'cannot be read'),
  ],
)
def test_a_malformed_list_is_refused_in_a_sentence(tmp_path, change, said):
  path = on_disk.as_text(tmp_path)
  path.write_text(change(path.read_text()), errors='surrogateescape')
  with pytest.raises(errors.InputError, match=said):
    files.read(path)


def test_a_missing_list_is_named(tmp_path):
  with pytest.raises(errors.InputError, match=r'list\.txt cannot be read'):
    files.read(tmp_path / 'list.txt')
