"""Writes small images in every form in which users store images."""

import io
import pathlib
import shutil
import tarfile

import numpy as np
import tensorflow as tf
from PIL import Image

# The picture of most tests has 12 x 8 pixels and four quarters, so that a rotation is visible.
RED, GREEN, BLUE, WHITE = (200, 0, 0), (0, 200, 0), (0, 0, 200), (255,) * 3


def quarters(width=12, height=8):
  """Returns uint8 [height, width, 3] with four quarters: red, green, and below them blue, white."""
  picture = np.empty([height, width, 3], np.uint8)
  top, left = height // 2, width // 2
  picture[:top, :left], picture[:top, left:] = RED, GREEN
  picture[top:, :left], picture[top:, left:] = BLUE, WHITE
  return picture


def encoded(picture, form='PNG', **more):
  """Returns the content of an image file."""
  image = picture
  if isinstance(picture, np.ndarray):
    image = Image.fromarray(picture)
  out = io.BytesIO()
  image.save(out, form, **more)
  return out.getvalue()


def jpeg(picture, orientation=None):
  """Returns a JPEG of high quality. Sets its EXIF orientation if one is given."""
  exif = Image.Exif()
  if orientation:
    exif[0x0112] = orientation
  return encoded(picture, 'JPEG', quality=95, subsampling=0, exif=exif)


def png16(picture):
  """Returns a PNG with 16 bits per channel; `picture` is uint16 [height, width, 3]."""
  return tf.io.encode_png(picture).numpy()


def photograph(number, side=16):
  """Returns a JPEG of noise, which is different for each number."""
  random = np.random.default_rng(number)
  coarse = random.integers(0, 256, (4, 4, 3), np.uint8)
  return jpeg(np.kron(coarse, np.ones([side // 4, side // 4, 1], np.uint8)))


def write(folder, names):
  """Writes a photograph for each name."""
  for number, name in enumerate(names):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(photograph(number))
  return folder


def classes(folder, sizes=None):
  """Writes photographs into a folder for each class."""
  sizes = sizes or {'cat': 6, 'dog': 5, 'emu': 7}
  return write(folder, [f'{c}/{i}.jpg' for c, k in sizes.items() for i in range(k)])


def tarred(folder, path, form=tarfile.PAX_FORMAT):
  """Packs a folder's content into a tar, as `tar -cf PATH -C FOLDER .` does."""
  with tarfile.open(path, 'w', format=form) as archive:
    archive.add(folder, '.')
  return path


def zipped(folder, path):
  """Packs a folder's content into a zip."""
  return pathlib.Path(shutil.make_archive(path.with_suffix(''), 'zip', folder))


def example(**values):
  """Returns a serialized tf.train.Example. In names, `__` stands for `/`."""
  feature = {}
  for name, value in values.items():
    if isinstance(value, int):
      made = tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))
    else:
      text = value if isinstance(value, bytes) else value.encode()
      made = tf.train.Feature(bytes_list=tf.train.BytesList(value=[text]))
    feature[name.replace('__', '/')] = made
  return tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()


def write_records(path, contents):
  path.parent.mkdir(parents=True, exist_ok=True)
  with tf.io.TFRecordWriter(str(path)) as writer:
    for content in contents:
      writer.write(content)
  return path


def of_tff(folder):
  """Writes files like TFF's gldv2 and inaturalist, with 3 users and 4 classes."""
  from tensorflow_federated.python.simulation.datasets import vision_datasets_utils

  def make(number, label):
    return vision_datasets_utils.create_example(photograph(number), label).SerializeToString()

  for user in range(3):
    write_records(
      folder / 'train' / f'user{user}',
      [make(10 * user + i, (user + i) % 4) for i in range(user + 2)],
    )
  write_records(folder / 'test.tfRecord', [make(50 + i, i) for i in range(4)])
  return folder
