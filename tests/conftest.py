"""Fixtures of all tests: one TFF worker per test process, and the folder of real data."""

import dataclasses
import gc
import os
import pathlib
import signal
import sys

import pytest

from datasets import cache_folder as cache_folder_lib
from tff_xc import lean_tensorflow

os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '2')
# Every op uses one thread, as in the in-process runtime, because more threads would add numbers in
# another order. An environment variable works in all cases: a call here would be too late, because
# some test modules run ops when they are imported.
os.environ.setdefault('TF_NUM_INTRAOP_THREADS', '1')
lean_tensorflow.install()

# A shell starts background processes with this signal ignored, and their children inherit the
# setting. Tests that interrupt a process would then wait forever.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish():
  """Makes the garbage collector skip the objects of imported modules, and run less often.

  Garbage collection took about a tenth of the time in which TFF traces and compiles.
  """
  gc.collect()
  gc.freeze()
  gc.set_threshold(50_000, 20, 20)


@pytest.fixture(scope='session', autouse=True)
def cache_folder(tmp_path_factory):
  """Sets a temporary folder for parsed files in this process and its child processes."""
  with pytest.MonkeyPatch.context() as patch:
    folder = tmp_path_factory.mktemp('cache')
    patch.setenv(cache_folder_lib.VARIABLE, str(folder))
    patch.setenv('XDG_STATE_HOME', str(tmp_path_factory.mktemp('state')))
    yield folder


@pytest.fixture(autouse=True)
def few_pictures(request, monkeypatch):
  """Skips the curves of runs in this process, unless a test has the mark `pictures`.

  Drawing the curves of a run takes half a second.
  """
  training = sys.modules.get('tff_xc.experiment.training')
  if training and 'pictures' not in request.keywords:
    monkeypatch.setattr(training, 'draw_curves', lambda run_dir: None)


@pytest.fixture
def blank_pictures(monkeypatch):
  """Saves one pixel instead of each picture in this process.

  Drawing a picture takes half a second.
  """
  from PIL import Image

  from tff_xc.report import pictures

  def save(figure, path):
    Image.new('RGB', (1, 1)).save(path)
    return [pathlib.Path(path)]

  monkeypatch.setattr(pictures, 'save', save)


@pytest.fixture(scope='session')
def tff_worker():
  """Installs TFF's worker as the default context of this process."""
  from tff_xc.runtime import registry

  return registry.install('worker')


@pytest.fixture(scope='session')
def in_process_context(tff_worker):
  """Returns the in-process runtime, which compiles each computation only once."""
  import tensorflow_federated as tff

  from tff_xc.runtime import registry

  context = registry.install('in_process')
  tff.framework.set_default_context(tff_worker)
  return context


@pytest.fixture
def in_process(in_process_context, tff_worker):
  """Installs the in-process runtime for one test."""
  import tensorflow_federated as tff

  tff.framework.set_default_context(in_process_context)
  yield in_process_context
  tff.framework.set_default_context(tff_worker)


@pytest.fixture(scope='module')
def _built():
  """The learning processes that `built_once` shares, each with its algorithm and seed."""
  return []


@pytest.fixture
def built_once(monkeypatch, _built):
  """Builds and compiles only one learning process for equal algorithms in the tests of a file.

  Algorithms also count as equal if they only sample clients differently.
  """
  from tests import sameness
  from tff_xc.round import process

  build = process.build_process

  def once(algorithm, seed=0):
    parts = dataclasses.replace(algorithm, sampling=None), seed
    for known, made in _built:
      if sameness.same(known, parts):
        return made
    _built.append((parts, build(algorithm, seed)))
    return _built[-1][1]

  monkeypatch.setattr(process, 'build_process', once)


@pytest.fixture
def small_blocks(monkeypatch):
  """Makes the blocks of `round.nearest` so small that a few rows fill several blocks."""
  from tff_xc.round import nearest

  monkeypatch.setattr(nearest, '_ROWS', 7)
  monkeypatch.setattr(nearest, '_LEAST_ROWS', 2)
  monkeypatch.setattr(nearest, '_SIMILARITIES', 100)


@pytest.fixture(scope='session')
def data_dir() -> pathlib.Path:
  """Returns the directory of the real data sets. Skips the test if the directory is missing."""
  root = pathlib.Path(__file__).parents[1]
  path = pathlib.Path(os.environ.get('TFF_XC_DATA', root / '..' / 'shared' / 'data'))
  if not path.is_dir():
    pytest.skip(f'no real data at {path}: set TFF_XC_DATA')
  return path
