"""Decodes images of any kind to RGB, and fits them into squares.

Cameras store a rotation in EXIF, which is applied. Transparent pixels become
white. Of 16 bits a channel the higher 8 are kept. CMYK, palettes and greyscale
are converted by Pillow.
"""

import io
import struct
import warnings
import zipfile
import zlib

import numpy as np
from PIL import ExifTags
from PIL import Image
from PIL import ImageOps

# What Pillow decodes by itself. For an EPS it would run another program.
_FORMATS = ('JPEG', 'PNG', 'GIF', 'BMP', 'TIFF', 'WEBP', 'JPEG2000', 'PPM')
# What Pillow, and the readers of archives, raise for a damaged image.
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

# They name lines of Pillow. What it warns of is readable, such as an image with
# damaged EXIF; images of twice as many pixels as it warns of are damaged ones.
warnings.filterwarnings('ignore', module=r'PIL\.')

_TURNS = {
  2: Image.Transpose.FLIP_LEFT_RIGHT,
  3: Image.Transpose.ROTATE_180,
  4: Image.Transpose.FLIP_TOP_BOTTOM,
  5: Image.Transpose.TRANSPOSE,
  6: Image.Transpose.ROTATE_270,
  7: Image.Transpose.TRANSVERSE,
  8: Image.Transpose.ROTATE_90,
}


def rgb(data: bytes, least: int = 0) -> Image.Image:
  """Decodes a JPEG, PNG, or another image of pixels, whatever its file's name.

  Args:
    data: the file's content.
    least: pixels a side that are enough. A larger JPEG is then decoded at half
      its size or less, which is several times as fast. 0: at full size.

  Raises:
    One of `DAMAGE`: it is no image, or is damaged or cut short.
  """
  with Image.open(io.BytesIO(data), formats=_FORMATS) as image:
    if least:
      image.draft('RGB', (least, least))
    image.load()
    turn = _TURNS.get(_orientation(image))
    image = _converted(image)
  return image if turn is None else image.transpose(turn)


def reason(error: Exception) -> str:
  """Returns ` (why)`; empty if Pillow only names the object in memory."""
  is_unknown = isinstance(error, Image.UnidentifiedImageError)
  return '' if is_unknown else f' ({error})'


def square(data: bytes, side: int) -> np.ndarray:
  """Decodes an image, scales its shorter side to `side`, and crops the middle.

  Returns:
    uint8 [side, side, 3].

  Raises:
    One of `DAMAGE`, as `rgb`.
  """
  return fitted(rgb(data, 2 * side), side)


def fitted(image: Image.Image, side: int) -> np.ndarray:
  """Returns the middle square of an image, uint8 [side, side(, channels)]."""
  size = (side, side)
  return np.asarray(ImageOps.fit(image, size, Image.Resampling.BICUBIC))


def fitted_array(image: np.ndarray, side: int) -> np.ndarray:
  """As `fitted`, of uint8 [height, width] or [height, width, channels]."""
  if image.ndim == 2:
    return fitted(Image.fromarray(image), side)
  planes = np.moveaxis(image, -1, 0)
  return np.stack(
    [fitted_array(np.ascontiguousarray(p), side) for p in planes], -1
  )


def _orientation(image: Image.Image) -> int:
  try:
    return image.getexif().get(ExifTags.Base.Orientation, 1)
  except Exception:  # Damaged EXIF raises anything; the image may be sound.
    return 1


def _converted(image: Image.Image) -> Image.Image:
  if image.mode.startswith('I'):  # 16 bits, or 32 that hold 16.
    high = np.clip(np.asarray(image).astype(np.int64), 0, 65_535) >> 8
    image = Image.fromarray(high.astype(np.uint8))
  if image.has_transparency_data:
    image = image.convert('RGBA')
    white = Image.new('RGBA', image.size, 'white')
    image = Image.alpha_composite(white, image)
  return image.convert('RGB')
