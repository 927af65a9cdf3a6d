"""Draws images and their nearest images. Importing this module imports no Matplotlib."""

import os
from collections.abc import Sequence

import numpy as np

from tff_xc import wording
from tff_xc.report import pictures

# The most characters of a name below an image.
_NAME = 18


def plot(
  rows: Sequence[tuple[str, np.ndarray, Sequence[tuple[str, np.ndarray, float]]]],
  path: str | os.PathLike,
) -> None:
  """Draws each query (name, pixels) with its neighbors (name, pixels, distance).

  Pixels are uint8 [height, width] or [height, width, 1 or 3]. The picture shows only the
  end of a long name, because file names usually differ at their ends.
  """
  across = 1 + max(len(near) for _, _, near in rows)
  size = 1.5 * across, 1.75 * len(rows)
  figure, axes = pictures.panels(across * len(rows), across, size)
  for row, (name, pixels, near) in enumerate(rows):
    shown = [(name, pixels, None), *near]
    for column in range(across):
      ax = axes[row * across + column]
      ax.set_xticks([])
      ax.set_yticks([])
      if column >= len(shown):
        ax.set_axis_off()
        continue
      text, image, distance = shown[column]
      ax.imshow(np.squeeze(image), cmap='gray', vmin=0, vmax=255)
      ax.set_xlabel(_end(text), fontsize=6)
      title = 'query' if distance is None else f'{distance:.3g}'
      ax.set_title(title, fontsize=7)
      if distance is None:
        for edge in ax.spines.values():
          edge.set(linewidth=2, color='#0072B2')
  pictures.save(figure, path)


def _end(name: str) -> str:
  text = wording.shown(name)
  return text if len(text) <= _NAME else f'…{text[1 - _NAME :]}'
