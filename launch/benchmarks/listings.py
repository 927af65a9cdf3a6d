"""Splits a list as long as ImageNet-21k's: python -m launch.benchmarks.listings FOLDER.

Writes a made-up list of 14,197,122 images of 21,841 classes to a new folder in FOLDER,
runs `launch.make_splits imagenet21k` on it in a process of its own, and prints that
process's seconds and peak memory, with what `summary.json` counts. No images are needed.
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy as np

IMAGES, CLASSES = 14_197_122, 21_841

# The kernel's `ru_maxrss` counts what the process was forked from, too.
_PROGRAM = """
import atexit, pathlib, re, runpy
status = pathlib.Path('/proc/self/status')
atexit.register(lambda: print(re.search(r'VmHWM:\\s+(\\d+)', status.read_text())[1]))
runpy.run_module('launch.make_splits', run_name='__main__', alter_sys=True)
"""


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
    *(sys.executable, '-c', _PROGRAM, 'imagenet21k'),
    *(f'--input={source}', f'--output={folder / "split"}'),
    f'--cache_dir={folder / "cache"}',
  ]
  started = time.monotonic()
  process = subprocess.run(command, stdout=subprocess.PIPE, text=True)
  if process.returncode:
    sys.exit(f'launch.make_splits ended with status {process.returncode}')
  summary = json.loads((folder / 'split' / 'summary.json').read_text())
  return {
    'rows': images,
    'seconds': time.monotonic() - started,
    'peak': 1024 * int(process.stdout.split()[-1]),
    **{name: summary[name] for name in ('clients', 'examples')},
  }


if __name__ == '__main__':
  with tempfile.TemporaryDirectory(dir=sys.argv[1]) as made:
    print(json.dumps(measure(pathlib.Path(made).resolve(), IMAGES, CLASSES)))
