"""Fixtures of all tests: one TFF worker a test process, and the real data."""

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
# An op has one thread, as in the in-process runtime, whichever test runs first:
# more sum in another order. A call would be too late, since some modules of tests
# run ops when they are imported.
os.environ.setdefault('TF_NUM_INTRAOP_THREADS', '1')
lean_tensorflow.install()

# A shell starts background processes with this signal ignored, and their
# children inherit that. Tests that interrupt a process would wait for ever.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish():
  """Lets the garbage collector pass over what the imports made, and run less.

  It took about a tenth of the time in which TFF traces and compiles.
  """
  gc.collect()
  gc.freeze()
  gc.set_threshold(50_000, 20, 20)


@pytest.fixture(scope='session', autouse=True)
def cache_folder(tmp_path_factory):
  """Caches parsed files here, for this process and those that it starts."""
  with pytest.MonkeyPatch.context() as patch:
    folder = tmp_path_factory.mktemp('cache')
    patch.setenv(cache_folder_lib.VARIABLE, str(folder))
    patch.setenv('XDG_STATE_HOME', str(tmp_path_factory.mktemp('state')))
    yield folder


@pytest.fixture(autouse=True)
def few_pictures(request, monkeypatch):
  """Lets no run in this process draw its curves, half a second each, unasked."""
  training = sys.modules.get('tff_xc.experiment.training')
  if training and 'pictures' not in request.keywords:
    monkeypatch.setattr(training, 'draw_curves', lambda run_dir: None)


@pytest.fixture
def blank_pictures(monkeypatch):
  """Saves a dot for each picture of this process, half a second each."""
  from PIL import Image

  from tff_xc.report import pictures

  def save(figure, path):
    Image.new('RGB', (1, 1)).save(path)
    return [pathlib.Path(path)]

  monkeypatch.setattr(pictures, 'save', save)


@pytest.fixture(scope='session')
def tff_worker():
  """Installs TFF's own worker as the default context of this process."""
  from tff_xc.runtime import registry

  return registry.install('worker')


@pytest.fixture(scope='session')
def in_process_context(tff_worker):
  """Returns the in-process runtime; it compiles a computation once."""
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
  """The processes that `built_once` shares, each with what it was made of."""
  return []


@pytest.fixture
def built_once(monkeypatch, _built):
  """Lets runs of one algorithm, in the tests of a file, share its process.

  It is compiled once. How the algorithm draws clients is no part of it.
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
  """Lets a few rows already fill several blocks of `round.nearest`."""
  from tff_xc.round import nearest

  monkeypatch.setattr(nearest, '_ROWS', 7)
  monkeypatch.setattr(nearest, '_LEAST_ROWS', 2)
  monkeypatch.setattr(nearest, '_SIMILARITIES', 100)


@pytest.fixture(scope='session')
def data_dir() -> pathlib.Path:
  """Returns the directory of the real data sets; skips if it is absent."""
  root = pathlib.Path(__file__).parents[1]
  path = pathlib.Path(os.environ.get('TFF_XC_DATA', root / '..' / 'shared' / 'data'))
  if not path.is_dir():
    pytest.skip(f'no real data at {path}: set TFF_XC_DATA')
  return path
