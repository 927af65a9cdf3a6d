"""`launch.benchmark svm`: its contenders take the same step at tiny sizes."""

import os

import numpy as np
import pytest

from launch.benchmarks import catalog
from launch.benchmarks import contender
from launch.benchmarks import harness
from launch.benchmarks import svm_sklearn
from launch.benchmarks import svm_step
from tff_xc.algorithms import svm
from tff_xc.runtime import registry

SVM = catalog.get('svm')
NAMES = 'ours', 'ours_1', 'sklearn'


@pytest.fixture
def calls(monkeypatch):
  """Calls that would change this process, in their order."""
  made = []
  monkeypatch.setattr(
    os, 'sched_setaffinity', lambda pid, cores: made.append(cores)
  )
  monkeypatch.setattr(registry, 'install', made.append)
  return made


def small(**sizes):
  return SVM.settings(**{**SVM.small, **sizes})


def built(name, settings):
  """Returns a contender after a round, and the round's check."""
  [size] = svm_step._sizes(settings)
  made = SVM.build(f'{name}@{size}', settings)
  made.run()
  check = made.report()['check']
  made.run()
  assert made.report()['check'] == check  # No round depends on the last one.
  return made, check


def disagreeing(checks):
  first = {
    f'{name}@5x4': contender.Reply(1.0, check) for name, check in checks.items()
  }
  [group] = SVM.groups(list(first))
  return set(harness.disagreeing(first, group, SVM.tolerances))


@pytest.mark.parametrize('drawn', [pytest.param(5, marks=pytest.mark.slow), 3])
def test_contenders_take_the_same_step(drawn, calls):
  settings = small(drawn=drawn)
  rows, weights = svm_step.make_arrays(settings, 5, 4)
  (ours, check), (theirs, wanted) = (
    built(name, settings) for name in ('ours', 'sklearn')
  )
  assert disagreeing({'ours': check, 'sklearn': wanted}) == set()
  np.testing.assert_allclose(ours.new, theirs.new, atol=1e-4)
  mean = np.average(rows, axis=0, weights=weights)
  moved = np.abs(ours.new - mean).max(axis=1)
  assert (moved[:drawn] > 5e-3).all()  # Adam's first step alone is 0.01.
  assert (moved[drawn:] < 1e-6).all()
  assert 1 <= check['support_vectors'] < 4
  assert 0 < check['pair_similarity'] < 1


@pytest.mark.slow
def test_one_core_is_taken_before_tensorflow_is_set_up(calls):
  _, check = built('ours_1', small())
  assert calls == [{max(os.sched_getaffinity(0))}, 'in_process']
  assert disagreeing({'ours': check, 'ours_1': check}) == set()


def test_a_step_that_is_wrong_is_found(calls, monkeypatch):
  _, wanted = built('sklearn', small())
  similarities = svm.similarities

  def wrong(*arguments):
    loss, gradient = similarities(*arguments)
    return 1.01 * loss, gradient

  monkeypatch.setattr(svm, 'similarities', wrong)
  _, check = built('ours', small())
  assert disagreeing({'ours': check, 'sklearn': wanted}) == {'sklearn@5x4'}


def test_the_product_takes_each_pair_of_blocks_once(monkeypatch):
  monkeypatch.setattr(svm_step, '_BLOCK', 8)
  seen = []

  class Rows(np.ndarray):
    def __matmul__(self, other):
      seen.append((len(self), other.shape[1]))
      return np.matmul(np.asarray(self), np.asarray(other))

  product = SVM.build('product@5x4', small())
  product._rows = product._rows.view(Rows)
  product.run()  # Of 20 rows.
  assert seen == [(8, 8), (8, 8), (8, 4), (8, 8), (8, 4), (4, 4)]
  assert product.report() == {}


def test_the_closed_form_is_the_gradient():
  random = np.random.default_rng(2)
  rows, normals = random.normal(size=[4, 3]), random.normal(size=[6, 3])
  normals[4] = 0  # Of a pair whose points coincide: it adds nothing.
  loss, gradient = svm_sklearn.similarities(rows, normals)

  wanted = 0.0
  pairs = [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]
  for (a, b), normal in zip(pairs, normals, strict=True):
    if normal.any():
      along = (rows[a] - rows[b]) @ normal / np.linalg.norm(normal)
      wanted += np.exp(-0.5 * along**2)
  assert loss == pytest.approx(wanted)
  for place in np.ndindex(*rows.shape):
    step = np.zeros_like(rows)
    step[place] = 1e-5
    forth, back = (
      svm_sklearn.similarities(rows + s, normals)[0] for s in (step, -step)
    )
    assert gradient[place] == pytest.approx((forth - back) / 2e-5, abs=1e-8)


def test_rows_are_common_ones_and_noise():
  settings = svm_step.Settings(dim=64)
  rows, weights = svm_step.make_arrays(settings, 100, 8)
  assert (rows.shape, rows.dtype) == ((8, 100, 65), np.float32)
  assert weights.shape == (8,) and (weights > 0).all()
  assert 1.2 / 8 < np.abs(rows).max() < 1.3 / 8
  noise = rows - rows.mean(axis=0)
  assert noise.std() / rows.std() == pytest.approx(0.27, rel=0.03)


def test_growth_is_shown_in_one_run():
  settings = svm_step.Settings((62, 964), (8,), 64)
  names = SVM.contenders(settings)
  assert len(names) == 8
  assert [pair.label for pair in SVM.pairs(names)] == [
    'ours@62x8/product@62x8',
    'sklearn@62x8/ours@62x8',
    'ours_1@62x8/ours@62x8',
    'ours@964x8/product@964x8',
    'sklearn@964x8/ours@964x8',
    'ours_1@964x8/ours@964x8',
    'ours@964x8/ours@62x8',
  ]
  assert SVM.groups(names) == [
    [f'{name}@{size}' for name in NAMES] for size in ('62x8', '964x8')
  ]


@pytest.mark.parametrize(
  ('sizes', 'left_out'),
  [
    (((62, 964, 2028), (8,), 64), []),
    (((62,), (8, 64, 512), 64), []),
    (((62,), (8, 512), 2048), []),
    (((10_000,), (8,), 64, 1000), []),
    (((2028,), (8, 64), 64), ['sklearn@2028x64']),
    (((3000, 10_000), (2,), 64), ['sklearn@3000x2', 'sklearn@10000x2']),
  ],
)
def test_scikit_learn_is_left_out_where_it_takes_too_much(sizes, left_out):
  settings = svm_step.Settings(*sizes)
  assert SVM.optional(settings) == left_out
  assert not {*left_out} & {*SVM.contenders(settings)}
  notes = SVM.notes(settings)
  assert len(notes) == len(left_out)
  for name, note in zip(left_out, notes, strict=True):
    assert note.startswith(f'{name} runs only if named: it takes more than 2')
