"""Images in every file format become the same square."""

import concurrent.futures
import time

import numpy as np
import pytest
from PIL import EpsImagePlugin, Image

from datasets.readers import decode
from tests.datasets import images_on_disk

PICTURE = images_on_disk.quarters()
GREY = np.array(Image.fromarray(PICTURE).convert('L'))


def close(found, expected, within=12):
  """Whether all pixels are nearly equal, except pixels near an edge."""
  assert found.shape == expected.shape
  assert found.dtype == np.uint8
  far = np.abs(found.astype(int) - expected).max(axis=-1) > within
  assert far.mean() < 0.5, far
  corners = far[[0, 0, -1, -1], [0, -1, 0, -1]]
  return not corners.any()


IMAGE = Image.fromarray(PICTURE)
COLOURED = {
  'PNG': images_on_disk.encoded(PICTURE),
  'JPEG': images_on_disk.jpeg(PICTURE),
  'palette': images_on_disk.encoded(IMAGE.convert('P')),
  'RGBA': images_on_disk.encoded(IMAGE.convert('RGBA')),
  'CMYK': images_on_disk.encoded(IMAGE.convert('CMYK'), 'JPEG', quality=95),
  '16 bits': images_on_disk.png16(PICTURE.astype(np.uint16) * 257),
  'WebP': images_on_disk.encoded(PICTURE, 'WebP', lossless=True),
}
GREYS = {
  'grey': images_on_disk.encoded(GREY),
  'grey JPEG': images_on_disk.jpeg(GREY),
  'grey 16 bits': images_on_disk.encoded(GREY.astype(np.uint16) * 257),
  'grey alpha': images_on_disk.encoded(Image.fromarray(GREY).convert('LA')),
}


@pytest.mark.parametrize('kind', [*COLOURED, *GREYS])
def test_every_kind_is_rgb(kind):
  data, expected = COLOURED.get(kind), PICTURE
  if kind in GREYS:
    data, expected = GREYS[kind], np.repeat(GREY[..., None], 3, axis=-1)
  whole = np.asarray(decode.rgb(data))
  assert close(whole, expected)
  assert close(decode.square(data, 8), expected[:, 2:10])


@pytest.mark.parametrize('progressive', [None, False, True])
def test_large_images_are_decoded_one_at_a_time(progressive, monkeypatch):
  picture, now, most = images_on_disk.quarters(96, 64), [], []
  data = images_on_disk.encoded(picture)
  if progressive is not None:  # A progressive JPEG is kept in memory as a whole.
    data = images_on_disk.encoded(picture, 'JPEG', progressive=progressive)

  def fitted(image, side, kept=decode.fitted):
    now.append(0)
    most.append(len(now))
    time.sleep(0.02)
    now.pop()
    return kept(image, side)

  monkeypatch.setattr(decode, 'fitted', fitted)
  monkeypatch.setattr(decode, 'LARGE', 1_000)
  with concurrent.futures.ThreadPoolExecutor(4) as threads:
    list(threads.map(lambda _: decode.square(data, 4), range(4)))
  assert (max(most) == 1) == (progressive is not False)


@pytest.mark.parametrize('form', ['GIF', 'TIFF', 'WebP'])
def test_the_first_frame_counts(form):
  more = [Image.new('RGB', (12, 8), images_on_disk.RED)]
  data = images_on_disk.encoded(PICTURE, form, save_all=True, append_images=more)
  assert close(np.asarray(decode.rgb(data)), PICTURE, within=40)


def test_transparent_pixels_are_white():
  image = Image.fromarray(PICTURE)
  image.putalpha(0)
  assert (decode.square(images_on_disk.encoded(image), 4) == 255).all()
  palette = Image.fromarray(PICTURE).quantize(4)
  data = images_on_disk.encoded(palette, transparency=palette.getpixel((0, 0)))
  found = np.asarray(decode.rgb(data))
  assert (found[0, 0] == 255).all()
  assert close(found[4:], PICTURE[4:])


@pytest.mark.parametrize('orientation', range(1, 9))
def test_a_rotation_in_exif_is_applied(orientation):
  upright = {
    1: lambda x: x,
    2: lambda x: x[:, ::-1],
    3: lambda x: x[::-1, ::-1],
    4: lambda x: x[::-1],
    5: lambda x: x.swapaxes(0, 1),
    6: lambda x: np.rot90(x, -1),
    7: lambda x: x[::-1, ::-1].swapaxes(0, 1),
    8: lambda x: np.rot90(x, 1),
  }[orientation]
  large = images_on_disk.quarters(48, 32)
  expected = upright(large)
  data = images_on_disk.jpeg(large, orientation)
  assert close(np.asarray(decode.rgb(data)), expected)
  found = decode.square(data, 8)  # The JPEG is decoded at half its size.
  assert close(found, upright(images_on_disk.quarters(8, 8)))


def test_any_size_becomes_the_square_in_its_middle():
  for size in ((1, 1), (3, 200), (200, 3), (8, 8), (9, 300)):
    data = images_on_disk.encoded(Image.new('RGB', size, images_on_disk.RED))
    found = decode.square(data, 8)
    assert found.shape == (8, 8, 3)
    assert (found == images_on_disk.RED).all()
  picture = images_on_disk.quarters(24, 16)
  picture[:, :4] = picture[:, -4:] = 77  # The left and right sides are cropped.
  found = decode.square(images_on_disk.encoded(picture), 8)
  assert close(found, images_on_disk.quarters(8, 8))
  assert not (found == 77).any()


@pytest.mark.parametrize(
  'data',
  [
    b'',
    b'hello',
    images_on_disk.jpeg(images_on_disk.quarters(64, 64))[:400],
    images_on_disk.encoded(images_on_disk.quarters(64, 64))[:-30],
    images_on_disk.png16(PICTURE.astype(np.uint16))[:60],
    images_on_disk.encoded(PICTURE).replace(b'IDAT', b'IDAX'),
    # A format that is not for photographs.
    images_on_disk.encoded(GREY.astype(np.float32) / 255, 'TIFF'),
  ],
)
def test_damage_is_one_of_few_exceptions(data):
  with pytest.raises(decode.DAMAGE):
    decode.square(data, 8)


def test_a_file_that_another_program_would_decode_is_no_image(monkeypatch):
  """Pillow would pass an EPS, which is a PostScript program, to Ghostscript."""
  called = []
  monkeypatch.setattr(EpsImagePlugin, 'Ghostscript', called.append)
  eps = images_on_disk.encoded(PICTURE, 'EPS')
  with pytest.raises(decode.DAMAGE):
    decode.rgb(eps)
  assert not called
