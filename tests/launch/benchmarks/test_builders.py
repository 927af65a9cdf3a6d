"""The contenders compute the same, each built and run at tiny sizes."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from launch.benchmarks import arrays
from launch.benchmarks import catalog
from launch.benchmarks import class_count
from launch.benchmarks import contender
from launch.benchmarks import harness
from launch.benchmarks import keras_lstm
from launch.benchmarks import lstm_step
from launch.benchmarks import paper_sizes
from launch.benchmarks import plain
from launch.benchmarks import small_clients
from tff_xc.round import nearest
from tff_xc.runtime import registry
from tff_xc.runtime.in_process import sums


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
  built = benchmark.build(
    who, benchmark.settings(**{**benchmark.small, **sizes})
  )
  built.run()
  report = built.report()
  built.run()
  assert built.report().get('check') == report['check']
  return report['check']


def assert_agree(name, base, other):
  tolerances = catalog.get(name).tolerances
  for key in tolerances:
    assert other[key] == pytest.approx(base[key], rel=tolerances[key]), key


def test_a_round_of_the_cnn_is_the_plain_loops(runtime):
  base = checked('round', 'plain')
  assert_agree('round', base, checked('round', runtime))


@pytest.mark.slow
def test_tffs_own_averaging_of_the_cnn_is_the_plain_loops(runtime):
  name = {'worker': 'tff_fedavg_worker', 'in_process': 'tff_fedavg'}[runtime]
  assert_agree('round', checked('round', 'plain'), checked('round', name))


def test_small_clients_compute_what_the_plain_loop_does(runtime):
  base = checked('small', 'plain')
  assert base['update_norm'] > 0.01
  assert_agree('small', base, checked('small', runtime))


@pytest.mark.slow
def test_one_block_is_folded_in_another_order(monkeypatch, runtime):
  if runtime == 'worker':
    pytest.skip('it folds in this process')
  sizes = {'clients': sums.MOST_BLOCKS + 8, 'examples': 2, 'batch_size': 1}
  blocks = checked('small', 'in_process', **sizes)
  monkeypatch.setattr(sums, 'MOST_BLOCKS', sums.MOST_BLOCKS)
  one = checked('small', 'one_block', **sizes)
  assert sums.block_size(sizes['clients']) == sizes['clients']
  assert_agree('small', blocks, one)


@pytest.fixture
def any_threads(monkeypatch):
  """Ignores settings of threads: TensorFlow runs already and refuses them."""
  for kind in ('intra', 'inter'):
    name = f'set_{kind}_op_parallelism_threads'
    monkeypatch.setattr(tf.config.threading, name, lambda n: None)


@pytest.mark.slow
def test_side_by_side_is_exactly_one_after_another(any_threads):
  base = checked('round', 'plain')
  other = checked('round', 'plain_side_by_side')
  assert other == pytest.approx(base, rel=1e-4)


@pytest.mark.parametrize('runtime', ['in_process'], indirect=True)
@pytest.mark.slow
def test_steps_of_the_lstm_are_kerass(runtime, any_threads):
  base = checked('lstm', 'keras')
  assert base['update_norm'] > 0.1
  assert_agree('lstm', base, checked('lstm', 'ours'))


@pytest.mark.parametrize('runtime', ['in_process'], indirect=True)
@pytest.mark.slow
def test_steps_of_mobilenet_are_kerass(runtime, any_threads):
  base = checked('mobilenet', 'keras')
  assert base['update_norm'] > 1e-3
  assert_agree('mobilenet', base, checked('mobilenet', 'ours'))
  assert_agree('mobilenet', base, checked('mobilenet', 'adapter'))


def test_a_keras_network_of_another_size_is_refused(any_threads):
  settings = lstm_step.Settings(**catalog.get('lstm').small)
  client, weights = lstm_step.make_arrays(settings)
  weights['lstm0/more'] = np.zeros([1])
  with pytest.raises(ValueError, match='parameters, not'):
    keras_lstm.steps(weights, client, 3, 1.0)


def test_plain_averages_by_examples():
  weights = arrays.torch_uniform(small_clients._SHAPES)
  few, many = (arrays.femnist_like(1, n, 62, seed=n)[0] for n in (1, 3))

  def moved(clients):
    rounds = plain.PlainRounds(plain.perceptron, weights, clients, 10, 0.1)
    rounds.run()
    return [
      v.numpy() - w
      for v, w in zip(rounds._snapshot, weights.values(), strict=True)
    ]

  for a, b, both in zip(
    moved([few]), moved([many]), moved([few, many]), strict=True
  ):
    assert both == pytest.approx(a / 4 + 3 * b / 4, abs=1e-6)


def test_select_sums_the_rows_asked_for(runtime):
  assert_agree('select', checked('select', 'floor'), checked('select', runtime))


def spreadout_checks(monkeypatch):
  """First replies of all contenders, for `harness.disagreeing`."""
  monkeypatch.setattr(registry, 'install', lambda name: None)
  benchmark = catalog.get('spreadout')
  sizes = {'classes': 40, 'num_classes': 150}
  return {
    name: contender.Reply(1.0, checked('spreadout', name, **sizes))
    for name in benchmark.contenders(benchmark.settings())
  }


def spreadout_disagreeing(first):
  benchmark = catalog.get('spreadout')
  wrong = {}
  for group in benchmark.groups(list(first)):
    wrong |= harness.disagreeing(first, group, benchmark.tolerances)
  return set(wrong)


def test_spreadout_contenders_agree_with_the_plain_definition(monkeypatch):
  first = spreadout_checks(monkeypatch)
  groups = catalog.get('spreadout').groups(list(first))
  assert {name for group in groups for name in group} == set(first)
  assert spreadout_disagreeing(first) == set()
  moved = [first[f'k={k}'].check[f'k={k}'] for k in (10, 100, 500)]
  assert moved[1] == pytest.approx(moved[2])  # There are 39 others.
  assert moved[0] != pytest.approx(moved[1], rel=0.1)
  assert catalog.get('spreadout').groups(['all', 'k=10']) == []


def test_a_spreadout_step_that_is_wrong_is_found(monkeypatch):
  search = nearest.nearest

  def farthest(queries, query_ids, rows, k):
    similarities, places = search(-queries, query_ids, rows, k)
    return -similarities, places

  monkeypatch.setattr(nearest, 'nearest', farthest)
  wrong = spreadout_disagreeing(spreadout_checks(monkeypatch))
  assert wrong == {'k=10', 'k=10_in_all'}


@pytest.mark.parametrize('name', ['rank', 'retrieve'])
def test_the_best_of_an_exact_ranking_is_the_products(name):
  assert_agree(name, checked(name, 'product'), checked(name, 'exact'))


@pytest.mark.slow
def test_fedss_takes_own_classes_and_negatives(runtime):
  check = checked('classes', f'{runtime}@200')
  assert check['class_rows'] == 100
  assert check['loss'] > 0


def test_a_cohort_has_its_own_classes_however_many_there_are():
  cohort = class_count.make_clients(2, 10**7)
  for client in cohort:
    assert len(set(client.y)) == 20
    assert client.x.shape == (20, 28, 28)
  assert list(cohort[0].y) != list(cohort[1].y)


def test_the_ratios_of_classes_are_named_by_their_sizes():
  names = ['in_process@10', 'in_process@1000', 'worker@10', 'worker@20']
  benchmark = catalog.get('classes')
  assert [tuple(pair) for pair in benchmark.pairs(names)] == [
    ('n=1000/n=10', 'in_process@1000', 'in_process@10'),
    ('worker n=20/n=10', 'worker@20', 'worker@10'),
    ('worker/in_process n=10', 'worker@10', 'in_process@10'),
  ]
  assert benchmark.groups(names) == [['in_process@10', 'worker@10']]


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


def test_the_bottleneck_is_compared_at_each_size():
  benchmark = catalog.get('bottleneck')
  names = ['plain@5', 'fullsoftmax@5', 'fedss@5', 'fedss@9', 'torch_submodel@9']
  assert [pair.label for pair in benchmark.pairs(names)] == [
    'fullsoftmax@5/plain@5',
    'fedss@5/fullsoftmax@5',
    'fedss@9/torch_submodel@9',
  ]
  assert [group for group in benchmark.groups(names) if len(group) > 1] == [
    ['plain@5', 'fullsoftmax@5'],
    ['fedss@9', 'torch_submodel@9'],
  ]


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
  built = benchmark.build(who, benchmark.settings(**benchmark.small))
  built.run()
  report = built.report()
  assert list(report['parts']) == [
    'data and state',
    'first round',
    'second round',
  ]
  assert report['seconds'] == report['parts']['second round']
  assert report['check']['loss'] > 0
  assert report['check']['class_rows'] >= 1


@pytest.mark.slow
def test_the_sizes_are_those_of_the_papers():
  settings = paper_sizes.Settings()
  of = lambda who: paper_sizes.experiment(who, settings)
  fedss = of('fedss@imagenet21k')
  assert fedss.algorithm.model.num_classes == 21_841
  assert fedss.config['hyperparameters']['negatives'] == 800
  assert fedss.config['hyperparameters']['clients_per_round'] == 64
  assert of('fullsoftmax@landmarks').algorithm.model.num_classes == 2_028


@pytest.mark.parametrize(
  ('name', 'classes', 'features'),
  [
    ('amazoncat', 13_330, 203_882),
    ('amazon670k', 670_091, 135_909),
  ],
)
def test_the_sizes_are_those_of_fedaws(name, classes, features):
  found = paper_sizes.experiment(f'fedaws_k500@{name}', paper_sizes.Settings())
  tables = found.algorithm.model.encoder.tables
  assert found.algorithm.model.num_classes == classes
  assert found.algorithm.model.row_dim == 512
  assert tables['feature'].num_rows == features
  assert found.dataset.train.largest_label_set == 1
  x, _ = found.dataset.train.pool.examples(np.arange(1000))
  assert 70 < x.nnz / 1000 < 80
  values = found.config['hyperparameters']
  assert values['clients_per_round'] == 4096
  assert values['spreadout_neighbors'] == 500


@pytest.mark.parametrize('name', catalog.BENCHMARKS)
def test_every_default_contender_is_in_a_ratio(name):
  benchmark = catalog.get(name)
  settings = benchmark.settings()
  names = [*benchmark.contenders(settings), *benchmark.optional(settings)]
  pairs = benchmark.pairs(names)
  if name == 'paper_sizes':  # Nothing to compare, and no room for two at once.
    assert (pairs, benchmark.passes, benchmark.fresh) == ([], 1, True)
    return
  assert {n for p in pairs for n in p[1:]} == set(names)
  assert len({p.label for p in pairs}) == len(pairs)
  assert benchmark.passes >= 7
