"""The papers' split rules at full size: python -m tests.listings DIRECTORY [RULE ...].

Writes made-up files in the form and with the number of rows of the owners' files,
runs `launch.make_splits` on them, and prints processor seconds and peak memory of
each rule, also to DIRECTORY/table.csv. The made-up files need 3 GB at most and are
deleted again. No images are needed.
"""

import csv
import io
import json
import pathlib
import runpy
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from collections.abc import Sequence

import numpy as np

from tests import kept
from tests.datasets import sop_on_disk
from tff_xc.report import text_table

ROOT = pathlib.Path(__file__).parents[1]
_BLOCK = 100_000  # Rows that are written at once.


def sizes(total: int, classes: int, offset: float) -> np.ndarray:
  """Returns int64 [classes]: sizes of at least 1 that fall as 1 / (c + offset)."""
  ends = np.cumsum(1 / (np.arange(classes) + offset))
  ends = np.round(ends / ends[-1] * (total - classes)).astype(np.int64)
  return 1 + np.diff(ends, prepend=0)


def _of(share: float, *counts: int) -> list[int]:
  return [max(round(share * count), 1) for count in counts]


def _lines(count: int, block) -> Iterator[str]:
  """Yields the text of rows; block(start, end) yields that of some."""
  for start in range(0, count, _BLOCK):
    yield ''.join(block(start, min(start + _BLOCK, count)))


def write_landmarks(
  folder: pathlib.Path, share: float
) -> tuple[pathlib.Path, int]:
  """Writes Google Landmarks v2's three files; returns their folder, and rows."""
  images, clean, landmarks, of_clean, authors = _of(
    share, 4_132_914, 1_580_470, 203_094, 81_313, 80_000
  )
  random = np.random.default_rng(0)
  # Odd multiples differ, modulo 2^64.
  numbers = np.arange(images, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
  ids = list(map('{:016x}'.format, numbers.tolist()))
  counts = sizes(clean, of_clean, of_clean / 400)
  landmark = np.append(
    np.repeat(np.arange(of_clean), counts),
    random.integers(0, landmarks, images - clean),
  )
  author = (authors * random.random(images) ** 4).astype(int)
  names = [
    _quoted(f'User:Author, "{i}"' if i % 3 else f'Zoë {i}')
    for i in range(authors)
  ]
  order = random.permutation(images)

  def of_train(start, end):
    for i in order[start:end].tolist():
      yield f'{ids[i]},{_URL}/{i}/Cath%C3%A9drale_{i}.jpg,{landmark[i]}\n'

  def of_authors(start, end):
    for i in order[start:end].tolist():
      yield (
        f'{ids[i]},{_PAGE}:Cath%C3%A9drale_{i}.jpg,{names[author[i]]},{_LICENSE},'
        f'"File:Cathédrale, {i}.jpg"\n'
      )

  ends = np.cumsum(counts)

  def of_landmarks(start, end):
    for c in range(start, end):
      yield f'{c},{" ".join(ids[ends[c] - counts[c] : ends[c]])}\n'

  for name, header, rows, block in (
    ('train', 'id,url,landmark_id', images, of_train),
    ('train_attribution', 'id,url,author,license,title', images, of_authors),
    ('train_clean', 'landmark_id,images', of_clean, of_landmarks),
  ):
    with (folder / f'{name}.csv').open('w') as file:
      file.write(f'{header}\n')
      file.writelines(_lines(rows, block))
  return folder, images


_URL = 'https://upload.wikimedia.org/wikipedia/commons/e/e8'
_PAGE = 'https://commons.wikimedia.org/wiki/File'
_LICENSE = 'https://creativecommons.org/licenses/by-sa/3.0/'


def _quoted(text: str) -> str:
  """Returns a cell as a CSV file has it."""
  cell = io.StringIO()
  csv.writer(cell, lineterminator='').writerow([text])
  return cell.getvalue()


def write_inaturalist(
  folder: pathlib.Path, share: float
) -> tuple[pathlib.Path, int]:
  """Writes the two zips of iNaturalist 2017; returns their folder, and rows.

  About as many classes have 100 images or more as in the published splits, 1,203.
  """
  train, val, classes, users = _of(share, 579_184, 95_986, 5_089, 18_000)
  random = np.random.default_rng(0)
  with (
    zipfile.ZipFile(
      folder / 'train_val2017.zip', 'w', zipfile.ZIP_DEFLATED
    ) as images,
    zipfile.ZipFile(
      folder / 'inat2017_locations.zip', 'w', zipfile.ZIP_DEFLATED
    ) as places,
  ):
    for part, count in (('train', train), ('val', val)):
      labels = np.repeat(
        np.arange(classes), sizes(count, classes, classes / 100)
      )
      labels = random.permutation(labels).tolist()
      with images.open(f'{part}2017.json', 'w') as file:
        for text in _annotations(part, labels, classes):
          file.write(text.encode())
      name = f'inat2017_locations/{part}2017_locations.json'
      with places.open(name, 'w') as file:
        for text in _locations(random, count, users):
          file.write(text.encode())
  return folder, train


def _annotations(part: str, labels: list[int], classes: int) -> Iterator[str]:
  """Yields the text of a file of images, categories and annotations."""

  def of_images(start, end):
    for i in range(start, end):
      c = labels[i]
      yield (
        f'{"," * (i > 0)} {{"id": {i}, "width": 800, "height": 600, "file_name":'
        f' "train_val_images/Aves/Genus species{c}/{part}{i:027x}.jpg", "license": 3,'
        ' "rights_holder": "Zoë \\"]}"}'
      )

  def of_categories(start, end):
    for c in range(start, end):
      yield (
        f'{"," * (c > 0)} {{"id": {c}, "name": "Genus species{c}", "supercategory":'
        ' "Aves"}'
      )

  def of_annotations(start, end):
    for i in range(start, end):
      yield (
        f'{"," * (i > 0)} {{"id": {i}, "image_id": {i}, "category_id": {labels[i]}}}'
      )

  yield '{"info": {"year": 2017}, "licenses": [{"id": 3, "name": "CC"}]'
  for name, count, block in (
    ('images', len(labels), of_images),
    ('categories', classes, of_categories),
    ('annotations', len(labels), of_annotations),
  ):
    yield f', "{name}": ['
    yield from _lines(count, block)
    yield ']'
  yield '}'


def _locations(random, count: int, users: int) -> Iterator[str]:
  """Yields the text of a file of places: clusters on the earth."""
  cluster = (400 * random.random(count) ** 2).astype(int)
  centres = random.uniform((-60, -170), (70, 170), (400, 2))
  lat, lon = (centres[cluster] + random.normal(0, 2, (count, 2))).round(6).T
  user = (users * random.random(count) ** 3).astype(int)

  def rows(start, end):
    for i in range(start, end):
      lat_lon = (lat[i], lon[i]) if i % 40 else ('null', 'null')
      yield (
        f'{"," * (i > 0)} {{"lat": {lat_lon[0]}, "lon": {lat_lon[1]}, "date":'
        f' "2015-06-01 12:00:00+00:00", "id": {i}, "user_id":'
        f' {user[i] if i % 50 else "null"}}}'
      )

  yield '['
  yield from _lines(count, rows)
  yield ']'


def write_sop(folder: pathlib.Path, share: float) -> tuple[pathlib.Path, int]:
  """Writes SOP's two lists; returns their folder, and rows."""
  train, classes, test, others = _of(share, 59_551, 11_318, 60_502, 11_316)
  lists = (
    sop_on_disk.rows(sizes(train, classes, classes / 2), 1, 1),
    sop_on_disk.rows(sizes(test, others, others / 2), 1 + classes, 1 + train),
  )
  return sop_on_disk.write(folder, *lists), train + test


def write_imagenet21k(
  folder: pathlib.Path, share: float
) -> tuple[pathlib.Path, int]:
  """Writes the list of ImageNet-21k's images; returns it, and rows."""
  images, classes = _of(share, 14_197_122, 21_841)
  counts = sizes(images, classes, classes / 12).tolist()
  with (folder / 'images.txt').open('w') as file:
    for c, count in enumerate(counts):
      synset = f'n{1_440_764 + 7 * c:08}'
      file.writelines(f'{synset}/{synset}_{i}.JPEG\n' for i in range(count))
  return folder / 'images.txt', images


RULES = {
  'landmarks-user-160k': write_landmarks,
  'inaturalist-user-120k': write_inaturalist,
  'inaturalist-geo-3k': write_inaturalist,
  'inaturalist-geo-100': write_inaturalist,
  'sop': write_sop,
  'imagenet21k': write_imagenet21k,
}


def split(rule: str, source: pathlib.Path, folder: pathlib.Path) -> dict:
  """Runs `launch.make_splits` in a process of its own.

  Args:
    rule: of `RULES`.
    source: its input.
    folder: a new one, in which the split and the cache are written.

  Returns:
    The split's `summary`, and the process's `seconds` of the processor and `peak`
    of resident bytes.

  Raises:
    SystemExit: the command failed; it has written why.
  """
  folder.mkdir()
  flags = [f'--input={source}', f'--output={folder / "split"}']
  done = subprocess.run(
    [
      *(sys.executable, '-m', 'tests.listings', '--child', rule),
      *(*flags, f'--cache_dir={folder / "cache"}'),
    ],
    cwd=ROOT,
    capture_output=True,
    text=True,
  )
  if done.returncode:
    sys.exit(f'{rule}: {done.stderr[-2_000:]}')
  summary = json.loads((folder / 'split' / 'summary.json').read_text())
  return {'summary': summary, **json.loads(done.stdout.splitlines()[-1])}


def _child(arguments: Sequence[str]) -> None:
  """Runs the command in this process, and prints what it took as JSON."""
  import resource

  sys.argv = ['launch.make_splits', *arguments]
  try:
    runpy.run_module('launch.make_splits', run_name='__main__', alter_sys=True)
  except SystemExit as end:
    if end.code:
      raise
  used = resource.getrusage(resource.RUSAGE_SELF)
  # ru_maxrss counts the process that started this one, too.
  status = pathlib.Path('/proc/self/status').read_text()
  peak = next(line for line in status.splitlines() if line.startswith('VmHWM'))
  found = {
    'seconds': used.ru_utime + used.ru_stime,
    'peak': 1024 * int(peak.split()[1]),
  }
  print(json.dumps(found))


def measure(
  directory: str, rules: Sequence[str] = (), share: float = 1.0
) -> list[list[str]]:
  """Writes files and splits them; returns a heading, and a row for each rule.

  Args:
    directory: a folder, made if it is not there; a new folder in it takes all
      files and is deleted.
    rules: of `RULES`; none: all.
    share: of the owners' numbers of rows and classes.

  Raises:
    SystemExit: there is no such rule, or a command failed.
  """
  if unknown := [rule for rule in rules if rule not in RULES]:
    sys.exit(f'{unknown[0]} is no rule; give some of {", ".join(RULES)}')
  table = [['rule', 'rows', 'processor s', 'peak GB', 'clients', 'examples']]
  writers = {RULES[rule]: None for rule in rules or RULES}
  pathlib.Path(directory).mkdir(parents=True, exist_ok=True)
  for writer in writers:
    with tempfile.TemporaryDirectory(dir=directory) as made:
      folder = pathlib.Path(made).resolve()
      (folder / 'input').mkdir()
      source, rows = writer(folder / 'input', share)
      for rule in (r for r in rules or RULES if RULES[r] == writer):
        found = split(rule, source, folder / rule)
        summary = found['summary']
        table.append(
          [
            *(rule, f'{rows:,}', f'{found["seconds"]:.1f}'),
            *(f'{found["peak"] / 1e9:.2f}', f'{summary["clients"]:,}'),
            f'{summary["examples"]:,}',
          ]
        )
        print(*table[-1], file=sys.stderr, flush=True)
  return table


if __name__ == '__main__':
  if sys.argv[1:2] == ['--child']:
    _child(sys.argv[2:])
  elif len(sys.argv) < 2 or sys.argv[1].startswith('-'):
    sys.exit(__doc__)
  else:
    _table = measure(sys.argv[1], sys.argv[2:])
    kept.write(pathlib.Path(sys.argv[1]) / 'table.csv', _table)
    print(text_table.to_text(_table), end='')
