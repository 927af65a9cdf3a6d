"""Decodes images of many formats to RGB, and scales and crops them to squares.

The decoder applies the rotation that cameras store in EXIF. Transparent pixels become
white. The decoder keeps the higher 8 bits of 16-bit channels. Pillow converts CMYK,
palettes and greyscale. Only the first frame or page is used.

A file of a few kilobytes may announce a huge number of pixels. Pillow refuses images of
more than 179 million pixels before it decodes them. Decoding an image of this size needs
1.4 to 2.8 GB of memory (JPEG 2000: 3.4 GB), so large images are decoded one at a time.
"""

import contextlib
import io
import struct
import threading
import warnings
import zipfile
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
from PIL import Image, ImageOps

# Images with more pixels are decoded one at a time.
LARGE = 2**24
_ONE_AT_A_TIME = threading.Lock()
# The formats that Pillow decodes itself. For EPS files it would run another program.
_FORMATS = ('JPEG', 'PNG', 'GIF', 'BMP', 'TIFF', 'WEBP', 'JPEG2000', 'PPM')
# The errors that Pillow and the readers of archives raise for a damaged image.
DAMAGE = (
  OSError,
  SyntaxError,
  ValueError,
  EOFError,
  RuntimeError,
  NotImplementedError,
  struct.error,
  zipfile.BadZipFile,
  zlib.error,
  Image.DecompressionBombError,
)

# Hide Pillow's warnings, which concern readable images with damaged EXIF or many pixels. For
# images with more than twice as many pixels as the warning allows, Pillow raises an error.
warnings.filterwarnings('ignore', module=r'PIL\.')


def rgb(data: bytes) -> Image.Image:
  """Decodes an image to RGB; raises one of `DAMAGE` if the image is damaged."""
  return _decoded(data, 0, lambda image: image)


def _decoded(data: bytes, least: int, use: Callable[[Image.Image], Any]):
  """Decodes an image to RGB, and returns the result of `use` on it.

  During a call for a large image, no other thread decodes a large image. A JPEG with at
  least 2 · `least` pixels a side is decoded at 1/2, 1/4 or 1/8 of its size, which is several
  times as fast. The smaller image still has at least `least` pixels a side. If `least` is 0,
  every image is decoded at full size.
  """
  image = Image.open(io.BytesIO(data), formats=_FORMATS)
  size = image.size
  if least:
    image.draft('RGB', (least, least))
  if not image.info.get('progressive'):  # A progressive JPEG needs the memory for its full size.
    size = image.size
  is_large = size[0] * size[1] > LARGE
  with _ONE_AT_A_TIME if is_large else contextlib.nullcontext():
    image.load()
    # Damaged EXIF may raise any error, although the image is readable.
    with contextlib.suppress(Exception):
      ImageOps.exif_transpose(image, in_place=True)
    found = use(_converted(image))
    del image  # Frees its memory before another thread decodes an image.
  return found


def reason(error: Exception) -> str:
  """Returns the error message as ` (why)`, or '' if it only names an object in memory."""
  is_unknown = isinstance(error, Image.UnidentifiedImageError)
  return '' if is_unknown else f' ({error})'


def square(data: bytes, side: int) -> np.ndarray:
  """Decodes an image, scales its shorter side to `side`, and crops the middle.

  Returns uint8 [side, side, 3]. Raises one of `DAMAGE`.
  """
  return _decoded(data, 2 * side, lambda image: fitted(image, side))


def fit(data: bytes, height: int, width: int, how: str = 'crop') -> np.ndarray:
  """Decodes an image to uint8 [height, width, 3].

  If `how` is 'crop', crops the image like `square`; then height and width must be equal.
  Otherwise stretches the image.
  """
  if how == 'crop':
    return square(data, height)
  return np.asarray(rgb(data).resize((width, height), Image.Resampling.BICUBIC))


def fitted(image: Image.Image, side: int) -> np.ndarray:
  """Returns the middle square of an image, uint8 [side, side(, channels)]."""
  size = (side, side)
  return np.asarray(ImageOps.fit(image, size, Image.Resampling.BICUBIC))


def fitted_array(image: np.ndarray, side: int) -> np.ndarray:
  """Applies `fitted` to uint8 [height, width] or [height, width, channels]."""
  if image.ndim == 2:
    return fitted(Image.fromarray(image), side)
  planes = np.moveaxis(image, -1, 0)
  return np.stack([fitted_array(np.ascontiguousarray(p), side) for p in planes], -1)


def _converted(image: Image.Image) -> Image.Image:
  if image.mode == 'F':
    raise ValueError('its pixels are floating-point numbers; write 8 bits each')
  if image.mode.startswith('I'):  # The pixels have 16 bits, or 32 bits with 16-bit values.
    pixels = np.asarray(image)
    if pixels.dtype.kind == 'i':
      pixels = np.clip(pixels, 0, 65_535)
    image = Image.fromarray((pixels >> 8).astype(np.uint8))
  if image.has_transparency_data:
    image = image.convert('RGBA')
    white = Image.new('RGBA', image.size, 'white')
    image = Image.alpha_composite(white, image)
  return image.convert('RGB')
