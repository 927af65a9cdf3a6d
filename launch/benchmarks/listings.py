"""Splits a list as long as ImageNet-21k's: python -m launch.benchmarks.listings FOLDER.

Writes a made-up list of 14,197,122 images of 21,841 classes to a new folder in FOLDER,
runs `launch.make_splits imagenet21k` on it in a process of its own, and prints that
process's seconds and peak memory, with what `summary.json` counts. No images are needed.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy as np

IMAGES, CLASSES = 14_197_122, 21_841


def sizes(total: int, classes: int, offset: float) -> np.ndarray:
  """Returns int64 [classes]: sizes of at least 1 that fall as 1 / (c + offset)."""
  ends = np.cumsum(1 / (np.arange(classes) + offset))
  ends = np.round(ends / ends[-1] * (total - classes)).astype(np.int64)
  return 1 + np.diff(ends, prepend=0)


def measure(folder: pathlib.Path, images: int, classes: int) -> dict:
  """Returns rows, `seconds`, `peak` in bytes, and the split's clients and examples."""
  source = folder / 'images.txt'
  with source.open('w') as file:
    for c, count in enumerate(sizes(images, classes, classes / 12).tolist()):
      synset = f'n{1_440_764 + 7 * c:08}'
      file.writelines(f'{synset}/{synset}_{i}.JPEG\n' for i in range(count))
  command = [
    *(sys.executable, '-m', 'launch.make_splits', 'imagenet21k'),
    *(f'--input={source}', f'--output={folder / "split"}'),
    f'--cache_dir={folder / "cache"}',
  ]
  started = time.monotonic()
  process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
  _, status, used = os.wait4(process.pid, 0)
  process.returncode = os.waitstatus_to_exitcode(status)
  if process.returncode:
    sys.exit(f'launch.make_splits ended with status {process.returncode}')
  summary = json.loads((folder / 'split' / 'summary.json').read_text())
  return {
    'rows': images,
    'seconds': time.monotonic() - started,
    'peak': 1024 * used.ru_maxrss,
    **{name: summary[name] for name in ('clients', 'examples')},
  }


if __name__ == '__main__':
  with tempfile.TemporaryDirectory(dir=sys.argv[1]) as made:
    print(json.dumps(measure(pathlib.Path(made).resolve(), IMAGES, CLASSES)))
