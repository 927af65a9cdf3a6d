"""The contenders compute the same, each built and run at tiny sizes."""

import os

import numpy as np
import pytest
import tensorflow_federated as tff

from launch.benchmarks import arrays
from launch.benchmarks import catalog
from launch.benchmarks import harness
from launch.benchmarks import listings
from launch.benchmarks import paper_sizes
from launch.benchmarks import process
from launch.benchmarks import round as round_lib
from launch.benchmarks import rounds
from launch.benchmarks import small
from launch.benchmarks import svm
from launch.benchmarks.peers import inputs
from tff_xc.algorithms import svm as svm_lib
from tff_xc.round import nearest
from tff_xc.runtime import registry
from tff_xc.runtime.in_process import phases


# `test_same_as_worker` compares the runtimes.
@pytest.fixture(
  params=['in_process', pytest.param('worker', marks=pytest.mark.slow)]
)
def runtime(request, monkeypatch):
  """A runtime's name; installed already, and `install` leaves it so."""
  if request.param not in registry.names():
    pytest.skip(f'there is no runtime {request.param}')
  worker = request.getfixturevalue('tff_worker')
  if request.param != 'worker':
    registry.install(request.param)
  monkeypatch.setattr(registry, 'install', lambda name, **options: None)
  yield request.param
  tff.framework.set_default_context(worker)


def checked(name, who, **sizes):
  """The check of a contender's first round; runs a second one, too."""
  benchmark = catalog.get(name)
  run = benchmark.build(who, benchmark.settings(**{**benchmark.small, **sizes}))
  check = run()['check']
  check = check() if callable(check) else check
  assert run()
  return check


def assert_agree(name, base, other):
  tolerances = catalog.get(name).tolerances
  for key in tolerances:
    assert other[key] == pytest.approx(base[key], rel=tolerances[key]), key


@pytest.mark.parametrize(
  ('name', 'base'),
  [
    pytest.param('round', 'plain', marks=pytest.mark.slow),
    ('small', 'plain'),
    ('select', 'floor'),
  ],
)
def test_a_runtime_computes_what_plain_tensorflow_does(name, base, runtime):
  expected = checked(name, base)
  assert expected.get('update_norm', 1.0) > 0.01
  assert_agree(name, expected, checked(name, runtime))


def test_the_best_of_an_exact_ranking_is_the_products():
  assert_agree('rank', checked('rank', 'product'), checked('rank', 'exact'))


@pytest.mark.slow
def test_tffs_own_averaging_of_the_cnn_is_the_plain_loops(runtime):
  name = {'worker': 'tff_fedavg_worker', 'in_process': 'tff_fedavg'}[runtime]
  assert_agree('round', checked('round', 'plain'), checked('round', name))


@pytest.mark.slow
def test_one_block_is_folded_in_another_order(monkeypatch, runtime):
  if runtime == 'worker':
    pytest.skip('it folds in this process')
  sizes = {'clients': phases.MOST_BLOCKS + 8, 'examples': 2, 'batch_size': 1}
  blocks = checked('small', 'in_process', **sizes)
  monkeypatch.setattr(phases, 'MOST_BLOCKS', phases.MOST_BLOCKS)
  one = checked('small', 'one_block', **sizes)
  assert phases.block_size(sizes['clients']) == sizes['clients']
  assert_agree('small', blocks, one)


def test_plain_averages_by_examples():
  weights = arrays.torch_uniform(small.SHAPES)
  few, many = (arrays.femnist_like(1, n, 62, seed=n)[0] for n in (1, 3))

  def moved(clients):
    run = rounds.plain(rounds.perceptron, weights, clients, 10, 0.1)
    run()
    pairs = zip(run.weights, weights.values(), strict=True)
    return [v.numpy() - w for v, w in pairs]

  for a, b, both in zip(
    moved([few]), moved([many]), moved([few, many]), strict=True
  ):
    assert both == pytest.approx(a / 4 + 3 * b / 4, abs=1e-6)


def disagreeing(name, first):
  """Returns which contenders' first checks are not those of their group's first."""
  benchmark, wrong = catalog.get(name), {}
  replies = {who: process.Reply(1.0, check) for who, check in first.items()}
  for group in benchmark.same(list(first)):
    wrong |= harness.disagreeing(replies, group, benchmark.tolerances)
  return set(wrong)


@pytest.mark.slow
def test_spreadout_contenders_agree_with_the_plain_definition(monkeypatch):
  monkeypatch.setattr(registry, 'install', lambda name: None)
  who = catalog.get('spreadout').contenders(None)
  sizes = {'classes': 40, 'num_classes': 150}
  checks = lambda: {n: checked('spreadout', n, **sizes) for n in who}
  first = checks()
  assert disagreeing('spreadout', first) == set()
  moved = [first[f'k={k}'][f'k={k}'] for k in (10, 100, 500)]
  assert moved[1] == pytest.approx(moved[2])  # There are 39 others.
  assert moved[0] != pytest.approx(moved[1], rel=0.1)
  search = nearest.nearest

  def farthest(queries, query_ids, rows, k):
    similarities, places = search(-queries, query_ids, rows, k)
    return -similarities, places

  monkeypatch.setattr(nearest, 'nearest', farthest)
  assert disagreeing('spreadout', checks()) == {'k=10', 'k=10_in_all'}


@pytest.mark.slow
def test_fedss_takes_own_classes_and_negatives(runtime):
  check = checked('classes', f'{runtime}@200')
  assert check['class_rows'] == 100
  assert check['loss'] > 0


@pytest.mark.slow
@pytest.mark.parametrize('runtime', ['in_process'], indirect=True)
def test_the_bottleneck_contenders_compute_the_same(runtime):
  base = {n: checked('bottleneck', f'plain@{n}') for n in (62, 400)}
  for n, expected in base.items():
    full = checked('bottleneck', f'fullsoftmax@{n}')
    assert full == pytest.approx(expected, rel=1e-4)
  # At n = 62 a client of FedSS holds all rows.
  sampled = checked('bottleneck', 'fedss@62')
  assert sampled == pytest.approx(base[62], rel=1e-4)
  # At n = 400 the corrected loss over 120 rows estimates that over all.
  assert_agree('bottleneck', base[400], checked('bottleneck', 'fedss@400'))


@pytest.mark.parametrize(
  'who',
  [
    pytest.param('fullsoftmax@landmarks', marks=pytest.mark.slow),
    pytest.param('fedss@imagenet21k', marks=pytest.mark.slow),
    pytest.param('fedaws_k500@amazoncat', marks=pytest.mark.slow),
  ],
)
def test_a_papers_size_is_two_rounds_of_its_experiment(who, in_process):
  benchmark = catalog.get('paper_sizes')
  report = benchmark.build(who, benchmark.settings(**benchmark.small))()
  assert report['seconds'] == report['parts']['second round']
  assert report['check']['loss'] > 0
  assert report['check']['class_rows'] >= 1


@pytest.mark.parametrize(
  ('who', 'classes', 'more'),
  [
    ('fedaws_k500@amazoncat', 13_330, {'clients_per_round': 4096}),
    pytest.param(
      *('fedaws_k500@amazon670k', 670_091, {'spreadout_neighbors': 500}),
      marks=pytest.mark.slow,
    ),
    pytest.param(
      'fedss@imagenet21k', 21_841, {'negatives': 800}, marks=pytest.mark.slow
    ),
    pytest.param(
      *('fullsoftmax@landmarks', 2_028, {'clients_per_round': 64}),
      marks=pytest.mark.slow,
    ),
  ],
)
def test_the_sizes_are_those_of_the_papers(who, classes, more):
  found = paper_sizes.experiment(who, paper_sizes.Settings())
  assert found.algorithm.model.num_classes == classes
  assert more.items() <= found.config['hyperparameters'].items()
  if who.startswith('fedaws'):
    features = {13_330: 203_882, 670_091: 135_909}[classes]
    tables = found.algorithm.model.encoder.tables
    assert found.algorithm.model.row_dim == 512
    assert tables['feature'].num_rows == features
    assert found.dataset.train.largest_label_set == 1
    x, _ = found.dataset.train.pool.examples(np.arange(1000))
    assert 70 < x.nnz / 1000 < 80


_SVM = svm.Settings(**svm.BENCHMARK.small)


def svm_step(name, drawn=5):
  """Returns (new rows, check) of a step; no round depends on the last one."""
  rows, weights = svm.make_arrays(_SVM, 5, 4)
  run = getattr(svm, name)(rows, weights, drawn)
  found = run()
  assert run()['check'] == found['check']
  return found['new'](), found['check']


@pytest.mark.slow
@pytest.mark.parametrize('drawn', [5, 3])
def test_svm_steps_are_the_same(drawn, monkeypatch):
  rows, weights = svm.make_arrays(_SVM, 5, 4)
  (ours, check), (theirs, wanted) = (
    svm_step(name, drawn) for name in ('our_step', 'sklearn_step')
  )
  found = lambda ours: {'ours@5x4': ours, 'sklearn@5x4': wanted}
  assert disagreeing('svm', found(check)) == set()
  np.testing.assert_allclose(ours, theirs, atol=1e-4)
  mean = np.average(rows, axis=0, weights=weights)
  moved = np.abs(ours - mean).max(axis=1)
  assert (moved[:drawn] > 5e-3).all()  # Adam's first step alone is 0.01.
  assert (moved[drawn:] < 1e-6).all()
  assert 1 <= check['support_vectors'] < 4
  assert 0 < check['pair_similarity'] < 1
  similarities = svm_lib.similarities

  def wrong(*arguments):
    loss, gradient = similarities(*arguments)
    return 1.01 * loss, gradient

  monkeypatch.setattr(svm_lib, 'similarities', wrong)
  _, check = svm_step('our_step', drawn)
  assert disagreeing('svm', found(check)) == {'sklearn@5x4'}


@pytest.mark.slow
def test_one_core_is_taken_before_tensorflow_is_set_up(monkeypatch):
  made = []
  take = lambda pid, cores: made.append(cores)
  monkeypatch.setattr(os, 'sched_setaffinity', take)
  monkeypatch.setattr(registry, 'install', made.append)
  checked('svm', 'ours_1@5x4')
  assert made == [{max(os.sched_getaffinity(0))}, 'in_process']


def test_the_closed_form_of_the_spread_out_is_the_gradient():
  random = np.random.default_rng(2)
  rows, normals = random.normal(size=[4, 3]), random.normal(size=[6, 3])
  normals[4] = 0  # Of a pair whose points coincide: it adds nothing.
  loss, gradient = svm.similarities(rows, normals)
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
      svm.similarities(rows + s, normals)[0] for s in (step, -step)
    )
    assert gradient[place] == pytest.approx((forth - back) / 2e-5, abs=1e-8)


def test_scikit_learn_is_left_out_where_it_takes_too_much():
  for sizes, left_out in (
    (((62, 964, 2028), (8,), 64), []),
    (((10_000,), (8,), 64, 1000), []),
    (((2028,), (8, 64), 64), ['sklearn@2028x64']),
  ):
    settings = svm.Settings(*sizes)
    assert svm.BENCHMARK.optional(settings) == left_out
    assert not {*left_out} & {*svm.BENCHMARK.contenders(settings)}
    notes = svm.BENCHMARK.notes(settings)
    assert [note.split()[0] for note in notes] == left_out


_SMALL = {'clients': 2, 'examples': 70, 'embedding_dim': 3, 'batch_size': 8}


def test_one_file_serves_every_number_of_classes(tmp_path):
  shapes = round_lib._shapes(2048, 62).values()
  assert sum(map(np.prod, shapes)) == 6_603_710
  settings = round_lib.BottleneckSettings(**_SMALL, num_classes=(62, 5000))
  path = str(tmp_path / 'arrays.npz')
  round_lib.write_arrays(settings, path)
  few, many = (inputs.load(path, n) for n in ('62', '5000'))
  others = {'x', 'y', 'batch_size', 'learning_rate', 'negatives'}
  assert set(few) == set(many) == others | set(round_lib._shapes(3, 62))
  assert [int(given['negatives']) for given in (few, many)] == [61, 1000]
  for n, given in ((62, few), (5000, many)):
    weights, clients = round_lib.make_arrays(settings, n)
    for k, client in enumerate(clients):
      np.testing.assert_array_equal(given['x'][k], client.x)
      np.testing.assert_array_equal(given['y'][k], client.y)
    for name, value in weights.items():
      np.testing.assert_array_equal(given[name], value)


@pytest.mark.slow
def test_a_client_of_the_bottleneck_has_few_classes_of_its_own():
  settings = round_lib.BottleneckSettings(clients=2)
  _, few = round_lib.make_arrays(settings, 62)
  _, many = round_lib.make_arrays(settings, 10**6)
  own, before = ([set(c.y) for c in made] for made in (many, few))
  assert list(map(len, own)) == list(map(len, before))
  assert not own[0] & own[1]
  np.testing.assert_array_equal(few[1].x, many[1].x)


def test_sizes_have_their_sum_and_fall():
  found = listings.sizes(1_000, 30, 2.0)
  assert found.sum() == 1_000
  assert found.min() >= 1
  assert found[0] > 5 * found[-1]


@pytest.mark.slow
def test_a_long_list_is_split(tmp_path):
  found = listings.measure(tmp_path, 141_971, 218)
  assert 5e7 < found['peak'] < 2e9
  assert found['clients'] > 5
  assert 500 < found['examples'] < found['rows'] == 141_971
