"""Tiny copies of Omniglot on disk, in the official formats."""

import io
import shutil

import numpy as np
from PIL import Image

from datasets.omniglot import clients as omniglot
from datasets.omniglot import files as omniglot_files

COUNTS = omniglot_files.Counts(
  background=3, evaluation=2, alphabets=3, drawers=4
)
# Unsorted, like a file system's list; the second part holds Angelic.
CLASSES = [
  (False, 'Greek/character02'),
  (True, 'Angelic/character02'),
  (False, 'Greek/character01'),
  (True, 'Angelic/character01'),
  (False, 'Braille/character01'),
]
SORTED = [
  'Braille/character01',
  'Greek/character01',
  'Greek/character02',
  'Angelic/character01',
  'Angelic/character02',
]


def ink(name, drawer):
  """Returns a different drawing for each class and drawer, bool [105, 105]."""
  seed = [*name.encode(), drawer]
  return np.random.default_rng(seed).random([105, 105]) < 0.1


def png(drawing):
  out = io.BytesIO()
  Image.fromarray(~drawing).convert('1').save(out, 'PNG')  # ink is black
  return out.getvalue()


def write_folders(place):
  for number, (evaluation, name) in enumerate(CLASSES):
    folder = place / omniglot_files.PARTS[evaluation] / name
    folder.mkdir(parents=True)
    for drawer in range(1, 5):
      path = folder / f'{709 + number:04d}_{drawer:02d}.png'
      path.write_bytes(png(ink(name, drawer)))


def write_zips(place):
  write_folders(place)
  for part in omniglot_files.PARTS:
    shutil.make_archive(str(place / part), 'zip', place, part)
    shutil.rmtree(place / part)


def write_npz(place):
  names = [name for _, name in CLASSES]
  order = np.random.default_rng(0).permutation(20)
  label, drawer = order // 4, order % 4 + 1
  bits = [
    np.packbits(ink(names[c], d), axis=-1)
    for c, d in zip(label, drawer, strict=True)
  ]
  np.savez_compressed(
    place / omniglot_files.NPZ,
    bits=np.array(bits),
    label=label.astype(np.int16),
    drawer=drawer.astype(np.int8),
    is_evaluation=np.array([CLASSES[c][0] for c in label]),
    class_names=np.array(names),
  )


WRITERS = {'folders': write_folders, 'zips': write_zips, 'npz': write_npz}


def load(data_dir, **kwargs):
  kwargs = {'train_drawers': 3, 'expected': COUNTS, **kwargs}
  return omniglot.load(data_dir, **kwargs)
