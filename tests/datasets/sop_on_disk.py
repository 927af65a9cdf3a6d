"""A tiny Stanford Online Products in the original format."""

import numpy as np

from tests.datasets import images_on_disk as images_on_disk

FOLDER = 'Stanford_Online_Products'
HEADER = 'image_id class_id super_class_id path'


def rows(sizes, first_class, first_image, seed=0):
  """Returns rows (image, class, super class, path) in random order of classes."""
  random = np.random.default_rng(seed)
  classes = first_class + np.repeat(np.arange(len(sizes)), sizes)
  made = []
  for i, c in enumerate(random.permutation(classes).tolist()):
    kind = ('bicycle', 'chair')[c % 2]
    path = f'{kind}_final/1{c:04}{first_image + i:05}_{i % 7}.JPG'
    made.append((first_image + i, c, c % 2 + 1, path))
  return made


def lists(train_sizes=(9, 2, 5, 12, 3, 6), test_sizes=(4, 2, 3)):
  train = rows(train_sizes, 1, 1)
  return train, rows(test_sizes, len(train_sizes) + 1, len(train) + 1, 1)


def text(found, header=HEADER):
  return '\n'.join([header, *(' '.join(map(str, row)) for row in found), ''])


def write(folder, train, test):
  """Writes the lists of training and test images. Returns their folder."""
  folder = folder / FOLDER
  folder.mkdir(parents=True)
  (folder / 'Ebay_train.txt').write_text(text(train))
  (folder / 'Ebay_test.txt').write_text(text(test))
  return folder


def write_images(folder, *lists):
  images_on_disk.write(folder, [row[3] for found in lists for row in found])
