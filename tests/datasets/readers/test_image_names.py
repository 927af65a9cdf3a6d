"""Reads class names and image names from folders and archives."""

import pytest

from datasets.readers import images
from tff_xc import errors

FILES = ('cat/2.jpg', 'cat/10.JPEG', 'dog/a b.png', 'dog-wild/x,1.jpg', 'dog/deep/er/3.jpg')
OTHERS = (
  'notes.txt',
  'cat/.hidden.jpg',
  '__MACOSX/cat/2.jpg',
  '.git/a/b.jpg',
  'cat/@eaDir/2.jpg',
  '$RECYCLE.BIN/a/2.jpg',
  '#recycle/a/b.jpg',
  'lost+found/1.jpg',
  '.ipynb_checkpoints/cat/2.jpg',
  'cat/Thumbs.db',
  '@Recycle/a/1.jpg',
  'Network Trash Folder/1.jpg',
  'FOUND.000/a/1.jpg',
)


def folder(root, files, outer=''):
  for name in files:
    path = root / outer / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b'')
  return root


def content(found, part='train'):
  numbers = getattr(found, part)
  return {
    name: found.class_names[label]
    for name, label in zip(found.ids_of(numbers), found.labels[numbers], strict=True)
  }


EXPECTED = {name: name.split('/')[0] for name in sorted(FILES)}


def test_what_is_no_image_by_its_name_is_told(tmp_path, capsys):
  pictures = [f'cat/1.{s}' for s in ('webp', 'JFIF', 'jpe', 'bmp', 'gif', 'tif')]
  others = ['cat/2.heic', 'fox/1.heic', 'fox/deep/2.heic', 'read_me', *OTHERS]
  source = folder(tmp_path / 'a', [*pictures, *others])
  assert len(images.read(source)) == 6
  told = capsys.readouterr().err
  assert told.count('\n') == 1
  assert '4 files' in told and '3 .heic, 1 without' in told


@pytest.mark.parametrize(
  ('train', 'test'),
  [
    *(('train', test) for test in ('test', 'val', 'validation', 'valid', 'dev')),
    ('Training', 'Testing'),
    ('Train', 'TEST'),
  ],
)
@pytest.mark.parametrize('outer', ['', 'outer/'])
def test_a_train_and_a_test_folder(train, test, outer, tmp_path):
  root = folder(tmp_path / 'a', [f'{outer}{train}/{n}' for n in FILES])
  folder(root, [f'{outer}{test}/dog/9.jpg', f'{outer}{test}/bird/1.png'])
  found = images.read(root)
  assert found.class_names == ['bird', 'cat', 'dog', 'dog-wild']
  assert content(found) == {f'{outer}{train}/{n}': c for n, c in EXPECTED.items()}
  assert content(found, 'test') == {
    f'{outer}{test}/bird/1.png': 'bird',
    f'{outer}{test}/dog/9.jpg': 'dog',
  }


# Names of classes that resemble system folders, but with other upper and lower case letters.
RESEMBLING = 'Lost+Found', 'Recycler', 'contest', 'interval', 'restraint'


@pytest.mark.parametrize(
  ('files', 'classes', 'test', 'told'),
  [
    ([f'{c}/1.jpg' for c in RESEMBLING], list(RESEMBLING), None, ''),
    (['test-1/1.jpg', 'a/1.jpg'], ['a', 'test-1'], None, ''),
    # A folder `train` without a test folder contains all images.
    (['train/a/1.jpg', 'train/b/1.jpg'], ['a', 'b'], None, ''),
    (['x/train/a/1.jpg', 'x/train/b/1.jpg'], ['a', 'b'], None, ''),
    # A class may be called train.
    (['bus/1.jpg', 'car/2.jpg', 'train/3.jpg'], ['bus', 'car', 'train'], None, ''),
    (
      ['train/bus/1.jpg', 'train/train/2.jpg', 'test/train/3.jpg'],
      ['bus', 'train'],
      ['test/train/3.jpg'],
      '',
    ),
    # If there are test images, images of `val` are ignored.
    (
      ['train/a/1.jpg', 'test/a/2.jpg', 'val/a/3.jpg', 'val/b/3.jpg'],
      ['a'],
      ['test/a/2.jpg'],
      '2 images for',
    ),
  ],
)
def test_which_folders_are_classes(files, classes, test, told, tmp_path, capsys):
  found = images.read(folder(tmp_path / 'a', files))
  assert found.class_names == classes
  assert test == (found.test if test is None else list(content(found, 'test')))
  assert told in capsys.readouterr().err


@pytest.mark.parametrize(
  ('files', 'message'),
  [
    (['train/a/1.jpg', 'test/2.jpg'], 'no class folder, in test'),
    (['train/1.jpg', 'test/2.jpg'], 'no class folder'),
    (['seg_train/a/1.jpg', 'seg_test/a/2.jpg', 'seg_pred/3.jpg'], 'two folders'),
    (['train/train/a/1.jpg', 'test/test/a/2.jpg'], 'two folders'),
    (['train2017/a/1.jpg', 'val2017/a/2.jpg'], 'two folders'),
    (['train/a/1.jpg', 'test/a/2.jpg', 'extra/3.jpg'], "'extra'"),
    (['train/a/1.jpg', 'sample/3.jpg'], "'sample'"),
    (['cat/1.jpg', 'dog/2.jpg', 'test/3.jpg'], "'cat'"),
    (['cat/1.jpg', 'dog/2.jpg', 'Valid/a/3.jpg'], "'cat'"),
    (['test/a/1.jpg', 'val/a/1.jpg'], 'to train on'),
    (['a/train/1.jpg', 'a/test/2.jpg', 'b/train/3.jpg'], 'two folders'),
    ([], r'no images \(\.jpg, \.jpeg, '),
    (['cat/notes.txt'], 'no images'),
    (['cat/1.jpg', '2.jpg'], 'in the top'),
  ],
)
def test_folders_that_are_no_classes(files, message, tmp_path):
  (tmp_path / 'a').mkdir()
  with pytest.raises(errors.InputError, match=message):
    images.read(folder(tmp_path / 'a', files))
