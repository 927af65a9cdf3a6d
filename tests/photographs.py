"""The path of photographs, measured: python -m tests.photographs DIRECTORY [ROUNDS].

Renders procedural handwriting in the shape of SOP as JPEGs in a tar, with the lists
of its owners, makes the split with `launch.make_splits`, trains FedSS with
MobileNetV3 at 96 pixels, and retrieves. Before and after it runs a plain Keras loop
on the same files (`tests.keras_photographs`). Then FedAvgM with FedVC and MobileNetV2,
with all layers and with two. It prints where the time goes, FedSS beside Keras, and
what SOP's full size would take, and writes runs.csv and beside_keras.csv.
"""

import dataclasses
import io
import json
import pathlib
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from unittest import mock

import numpy as np
from PIL import Image

from datasets.images import clients
from datasets.procedural import glyphs
from tasks import experiment
from tests import kept as kept_lib
from tff_xc.report import run_files
from tff_xc.report import text_table

ROOT = pathlib.Path(__file__).parents[1]
# A fifteenth of the clients, and a fifteenth of the classes to retrieve.
SIZES = {'num_classes': 750, 'num_clients': 40, 'retrieval_classes': 200}
SIDE = 96
_STORED = 200, 160  # Pixels of a JPEG: width and height.
_HEADER = 'image_id class_id super_class_id path\n'
# SOP's clients of 100 images in a round, images to train on and to retrieve; an
# evaluation also looks at 5,000 of those trained on.
_CLIENTS, _TRAINED, _RETRIEVED, _LOOKED_AT = 32, 59_551, 60_502, 5_000


def render(directory: pathlib.Path, sizes=SIZES) -> pathlib.Path:
  """Writes DIRECTORY/sop: images.tar, the lists, and the split. Returns DIRECTORY."""
  folder = directory / 'sop'
  folder.mkdir(parents=True)
  found = glyphs.load_preset('glyphs-sop', **sizes)
  with tarfile.open(folder / 'images.tar', 'w') as tar:
    for name, pool, first in (
      ('Ebay_train.txt', found.train.pool, 1),
      ('Ebay_test.txt', found.retrieval, 1 + found.num_classes),
    ):
      with (folder / name).open('w') as lines:
        lines.write(_HEADER)
        for number, (image, label) in enumerate(_examples(pool)):
          path = f'glyph_final/{name[5:-4]}{number:06d}_0.JPG'
          data = _jpeg(image, number)
          member = tarfile.TarInfo(path)
          member.size = len(data)
          tar.addfile(member, io.BytesIO(data))
          lines.write(f'{number + 1} {first + label} 1 {path}\n')
  subprocess.run(
    [
      *(sys.executable, '-m', 'launch.make_splits', 'sop'),
      *(f'--input={folder}', f'--output={folder / "sop"}'),
    ],
    cwd=ROOT,
    check=True,
    stdout=subprocess.DEVNULL,
    stderr=subprocess.DEVNULL,
  )
  return directory


def _examples(pool) -> Iterator:
  for x, y in pool.blocks():
    yield from zip(x, y, strict=True)


def _jpeg(glyph: np.ndarray, number: int) -> bytes:
  """Returns a glyph in a colour on another, as a JPEG of a photograph's size."""
  random = np.random.default_rng(number)
  ink, paper = random.integers(0, 120, 3), random.integers(136, 256, 3)
  share = np.asarray(Image.fromarray(glyph).resize(_STORED), float)[..., None]
  picture = share / 255 * ink + (1 - share / 255) * paper
  noisy = np.clip(picture + random.normal(0, 4, picture.shape), 0, 255)
  out = io.BytesIO()
  Image.fromarray(noisy.astype(np.uint8)).save(out, 'JPEG', quality=90)
  return out.getvalue()


def config(directory, algorithm: str, rounds: int, **changes):
  """Returns a configuration of task sop at 96 pixels, from scratch."""
  given = {
    'data_dir': str(directory),
    'image_size': SIDE,
    'clients_per_round': 4,
    'rounds': rounds,
    'eval_every': rounds,
    **changes,
  }
  return experiment.resolve('sop', algorithm, given)


class Clock:
  """The seconds of each call of a function.

  Attributes:
    elapsed: seconds on the wall.
    processor: seconds by `now`.
  """

  def __init__(self, now=time.process_time):
    self.elapsed, self.processor, self._now = [], [], now

  def timing(self, function):
    def timed(*arguments, **named):
      start, before = time.perf_counter(), self._now()
      try:
        return function(*arguments, **named)
      finally:
        self.elapsed.append(time.perf_counter() - start)
        self.processor.append(self._now() - before)

    return timed


def measure(settings, run_dir: pathlib.Path, made=None):
  """Trains; returns seconds and bytes by what they are of, and the summary.

  Processor time is that of all cores, as other programs may hold some of them.
  """
  from datasets.images import decode
  from tff_xc.experiment import loop
  from tff_xc.measure import evaluation

  # Decoding runs beside training, in other threads.
  clocks = {
    (decode, 'square'): Clock(time.thread_time),
    (evaluation.Evaluator, '__call__'): Clock(),
    (loop._Held, 'next'): Clock(),
  }
  kept = {place: getattr(*place) for place in clocks}
  made = made or experiment.assemble(settings)
  for place, clock in clocks.items():
    setattr(*place, clock.timing(kept[place]))
  start = time.perf_counter()
  try:
    summary = made.run(str(run_dir))
  finally:
    for place, function in kept.items():
      setattr(*place, function)
  decoded, evaluated, of_rounds = clocks.values()
  rounds = run_files.read_run(run_dir).metrics.iloc[1:]
  return {
    'all': time.perf_counter() - start,
    'rounds': sum(of_rounds.elapsed),
    # The first one builds the graph.
    'a round': float(np.median(of_rounds.elapsed[1:])),
    'a round, processor': float(np.median(of_rounds.processor[1:])),
    'examples a round': float(rounds['examples'].mean()),
    'evaluations': sum(evaluated.elapsed),
    'decoding, processor': sum(decoded.processor),
    'images decoded': len(decoded.elapsed),
    'bytes down a client': summary['bytes_down_per_client_round'],
    'bytes up a client': summary['bytes_up_per_client_round'],
  }, summary


def keras(directory: pathlib.Path) -> dict[str, float]:
  """Returns seconds an image of a plain Keras loop, see `keras_photographs`."""
  done = subprocess.run(
    [sys.executable, '-m', 'tests.keras_photographs', str(directory)],
    cwd=ROOT,
    check=True,
    stdout=subprocess.PIPE,
    stderr=subprocess.DEVNULL,
    timeout=600,
  )
  return json.loads(done.stdout.splitlines()[-1])


def rounds_only(settings, run_dir: pathlib.Path, kept: bool) -> dict:
  """Trains 5 rounds without a score of the images trained on; as `measure`.

  The score of round 0 would decode them all, and the pool keeps what it decodes.

  Args:
    settings: of a run.
    run_dir: a new one.
    kept: True: all images are decoded before; False: each whenever it is used.
  """
  few = {**settings, 'rounds': 5, 'eval_every': 5}
  with mock.patch.object(clients, 'CACHE', clients.CACHE if kept else 0):
    made = experiment.assemble(few)
  if kept:
    for _ in made.dataset.train.pool.blocks():
      pass
  made = dataclasses.replace(made, metrics=('map@10',))
  return measure(few, run_dir, made)[0]


def beside_keras(
  path: dict, warm: dict, cold: dict, before: dict, after: dict
) -> tuple[list[list[str]], str]:
  """Returns a table: milliseconds of an image on the path, and in Keras's loop.

  And what is said of it.

  Args:
    path: from `measure`.
    warm: from `rounds_only`, of decoded images.
    cold: the same, of images that are decoded when they are used.
    before: of Keras, from `keras`.
    after: the same again.
  """
  of_round = lambda found, name: found[name] / found['examples a round']
  ours = {
    'decoding, processor': path['decoding, processor'] / path['images decoded'],
    'training, processor': of_round(warm, 'a round, processor'),
    'both, processor': of_round(cold, 'a round, processor'),
    'training, elapsed': of_round(warm, 'a round'),
    'both, elapsed': of_round(cold, 'a round'),
  }
  rows = [['ms an image', 'FedSS', 'Keras, GroupNorm', 'Keras, BatchNorm']]
  for name, seconds in ours.items():
    cells = [name, f'{1000 * seconds:.2f}']
    for norm in ('GroupNorm', 'BatchNorm'):
      times = sorted(1000 * found[norm][name] for found in (before, after))
      cells.append('{:.2f} – {:.2f}'.format(*times))
    rows.append(cells)
  return rows, (
    'Keras runs before FedSS and after it. Its softmax is over all'
    f' {SIZES["num_classes"]} classes, that of\nFedSS over the'
    f' rows of a client. FedSS decodes'
    f' {1 / ours["decoding, processor"]:,.0f} images a second and thread.\n'
  )


def at_full_size(path: dict, images: int, evaluated: int, rendered) -> str:
  """Returns what 596 clients would take, from the times of these.

  Args:
    path: from `measure`, of a run with two evaluations.
    images: in the tar.
    evaluated: images of an evaluation.
    rendered: seconds of rendering; None if the images were there.
  """
  seconds = {
    f'20 rounds of {_CLIENTS} clients': 20
    * _CLIENTS
    * 100
    * (path['a round'] / path['examples a round']),
    'an evaluation': (_RETRIEVED + _LOOKED_AT)
    * (path['evaluations'] / 2 / evaluated),
  }
  if rendered is not None:
    seconds['rendering'] = (_TRAINED + _RETRIEVED) * rendered / images
  told = ', '.join(f'{n} {s / 60:.0f} minutes' for n, s in seconds.items())
  return f'All 596 clients and {_TRAINED + _RETRIEVED:,} images: {told}.'


def main(directory: str, rounds: str = '20') -> None:
  """Measures, and prints what was found."""
  folder, count = pathlib.Path(directory), int(rounds)
  rendered, start = None, time.perf_counter()
  if not (folder / 'sop').exists():
    render(folder)
    rendered = time.perf_counter() - start
    print(f'rendering: {rendered:.0f} s', flush=True)
  fedss = config(folder, 'fedss', count, negatives=80)
  before = keras(folder)
  experiment.install_runtime(fedss)
  made = experiment.assemble(fedss)
  trained = len(made.dataset.train.owned_labels()[1])
  retrieved = len(made.dataset.retrieval)
  print(
    f'{SIZES["num_clients"]} of 596 clients, {trained:,} images to train on and'
    f' {retrieved:,} to retrieve',
    flush=True,
  )
  found, summary = measure(fedss, folder / 'fedss', made)
  runs = {'FedSS, MobileNetV3': found}
  _print(*runs, found, summary)
  warm = rounds_only(fedss, folder / 'fedss_warm', kept=True)
  cold = rounds_only(fedss, folder / 'fedss_cold', kept=False)
  table, told = beside_keras(found, warm, cold, before, keras(folder))
  kept_lib.write(folder / 'beside_keras.csv', table)
  print('\n' + text_table.to_text(table) + told)
  evaluated = retrieved + min(trained, _LOOKED_AT)
  print(at_full_size(found, trained + retrieved, evaluated, rendered))
  for trained in ('all', 'bottleneck'):
    virtual = config(
      *(folder, 'fedavgm', max(count // 4, 2)),
      **{
        'encoder': 'mobilenet_v2',
        'virtual_client_size': 64,
        'batch_size': 32,
      },
      trainable=trained,
    )
    found, summary = measure(virtual, folder / trained)
    title = f'FedAvgM with FedVC, MobileNetV2, {trained}'
    runs[title] = found
    _print(title, found, summary)
  kept_lib.write(
    folder / 'runs.csv',
    [
      ['', *runs],
      *(
        [name, *(f'{each[name]:,.2f}' for each in runs.values())]
        for name in runs[title]
      ),
    ],
  )


def _print(title: str, found, summary) -> None:
  print(f'\n{title}: {summary["final"]}')
  for name, value in found.items():
    print(f'  {name:<24}{value:14,.2f}', flush=True)


if __name__ == '__main__':
  main(*sys.argv[1:])
