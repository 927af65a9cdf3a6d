"""Tasks: algorithms accept their defaults, and models fit their data."""

import functools

import numpy as np
import pytest

from datasets.cifar import clients as cifar
from tasks import registry
from tests import tiny
from tests.datasets.cifar import on_disk as cifar_on_disk
from tff_xc import errors
from tff_xc import heads
from tff_xc.algorithms import registry as algorithms

CLIENTS = lambda dataset: dataset.train.client_ids


def options_of(task, **changes):
  return task.option_values() | changes


@pytest.mark.parametrize('name', registry.TASKS)
def test_defaults_are_of_hyperparameters_and_within_bounds(name):
  task = registry.get(name)
  for defaults in (task.defaults, *task.by_algorithm.values()):
    assert set(defaults) <= set(algorithms.HYPERPARAMETERS)
  for algorithm in ('fedaws', 'fedaws_posonly'):
    found = algorithms.get(algorithm)
    made = found(**found.resolve({}, task.hyperparameters(found)))
    assert not [w for w in made.warnings(10**6, 1) if 'spreadout' in w]


@functools.cache
def loaded(name):
  task = registry.get(name)
  return task.load('', options_of(task))


# `test_glyphs` loads the largest preset.
NAMES = [
  pytest.param(n, marks=[pytest.mark.slow] * (n == 'glyphs-imagenet21k'))
  for n in registry.TASKS
]


@pytest.mark.parametrize(
  'name', [n for n in NAMES if n.values[0].startswith('glyphs')]
)
def test_glyph_tasks_load_what_they_say(name):
  task = registry.get(name)
  dataset, model = loaded(name)
  assert dataset.name == name
  assert model.num_classes == dataset.num_classes
  assert model.encoder.example_spec == dataset.train.element_type_structure['x']
  if 'top1' in task.metrics:
    assert dataset.test is not None
  if 'map@10' in task.metrics:
    assert dataset.retrieval is not None
  assert task.clients_per_round <= len(dataset.train.client_ids)


@pytest.mark.parametrize('name', NAMES)
def test_the_number_of_classes_is_known_without_the_data(name):
  task = registry.get(name)
  known = task.known_classes(options_of(task))
  if name.startswith('glyphs') or name == 'sparse-words':
    assert known == loaded(name)[0].num_classes
  else:
    assert (known is None) == task.data_is_named


def test_the_glyphs_task_has_any_shape():
  task = registry.get('glyphs')
  shape = {
    'num_classes': 10**6,
    'num_clients': 7,
    'classes_per_client': 4,
    'examples_per_client': 9,
  }
  dataset, model = task.load('', options_of(task, **shape, data_seed=3))
  assert model.num_classes == 10**6
  assert len(dataset.train.client_ids) == 7
  labels = dataset.train.labels(dataset.train.client_ids[0])
  assert (len(labels), len(set(labels))) == (9, 4)
  other, _ = task.load('', options_of(task, **shape))
  assert set(labels) != set(other.train.labels(other.train.client_ids[0]))
  assert 'num_classes' not in registry.get('glyphs-sop').option_values()


def test_any_number_of_unseen_classes_is_retrieved():
  task = registry.get('glyphs-retrieval')
  dataset, model = task.load('', options_of(task, retrieval_classes=5))
  assert set(dataset.retrieval.y) == set(range(5))
  assert set(task.metrics_of(dataset, model)) == set(task.metrics)


def test_clients_of_glyphs_may_differ_in_size():
  task = registry.get('glyphs')
  ends = {'classes_least': 2, 'classes_most': 40}
  dataset, _ = task.load('', options_of(task, **ends))
  labels = [dataset.train.labels(c) for c in dataset.train.client_ids]
  classes = [len(set(each)) for each in labels]
  assert min(classes) == 2
  assert 30 < max(classes) <= 40
  assert max(map(len, labels)) > 5 * min(map(len, labels))
  with pytest.raises(errors.InputError, match='--classes_most=0: the mean, '):
    task.load('', options_of(task, classes_least=2))


@pytest.mark.parametrize(
  ('name', 'head', 'embedding_dim'),
  [
    ('cifar10', heads.CosineHead, 8),
    ('cifar10-dirichlet', heads.LinearHead, 192),
  ],
)
def test_cifars_networks_are_those_of_their_papers(
  name, head, embedding_dim, tmp_path, monkeypatch
):
  counts = cifar_on_disk.COUNTS['cifar10']
  load = functools.partial(cifar.load, expected=counts)
  monkeypatch.setattr(cifar, 'load', load)
  content = cifar_on_disk.files('cifar10', 'binary')
  folder = cifar_on_disk.write(tmp_path, content)
  task = registry.get(name)
  options = options_of(task, num_clients=4)
  if 'embedding_dim' in options:
    options['embedding_dim'] = embedding_dim
  _, model = task.load(str(folder), options)
  assert isinstance(model.head, head)
  assert model.encoder.embedding_dim == embedding_dim


def test_omniglot_from_the_real_file(data_dir):
  task = registry.get('omniglot')
  dataset, model = task.load(str(data_dir), options_of(task))
  assert len(dataset.train.client_ids) == 480
  assert model.num_classes == task.known_classes(options_of(task)) == 964


def test_images_measures_what_the_file_has_examples_for(tmp_path):
  random = np.random.default_rng(0)
  content = {
    'x': random.integers(0, 256, (9, 16, 16, 3), dtype=np.uint8),
    'y': np.arange(9) % 4,
    'client': np.arange(9) % 2,
  }
  np.savez(tmp_path / 'mine.npz', **content)
  task = registry.get('images')
  dataset, model = task.load(str(tmp_path / 'mine.npz'), options_of(task))
  assert model.num_classes == 4
  assert task.metrics_of(dataset, tiny.model()) == ('train_top1',)


@pytest.mark.parametrize(
  ('name', 'classes', 'features', 'commonest'),
  [('delicious', 983, 500, 0.4075), ('bibtex', 159, 1836, 0.0775)],
)
def test_multi_label_sets_from_the_real_files(
  data_dir, name, classes, features, commonest
):
  task = registry.get(name)
  dataset, model = task.load(str(data_dir), options_of(task))
  assert model.num_classes == classes
  assert model.encoder.example_spec.num_features == features
  assert task.metrics_of(dataset, tiny.model())[:3] == ('p@1', 'p@3', 'p@5')
  assert all(len(set(dataset.train.labels(c))) == 1 for c in CLIENTS(dataset))
  # The P@1 of always answering the commonest label of the clients.
  counts = np.bincount(dataset.train.owned_labels()[1])
  assert round(dataset.test.y[:, counts.argmax()].mean(), 4) == commonest


def test_without_clients_a_tasks_server_does_not_apply():
  of = lambda task, name: registry.get(task).hyperparameters(
    algorithms.get(name)
  )
  assert 'server_optimizer' not in of('omniglot', 'centralized')
  assert of('omniglot', 'fedss')['server_optimizer'] == 'adam'
  assert of('cifar10', 'centralized')['server_optimizer'] == 'adam'


def test_options_of_label_sets_reach_the_data():
  task = registry.get('sparse-words-sets')
  small = {**task.option_values(), 'num_classes': 30, 'num_features': 40}
  made = lambda **more: task.load('', {**small, **more}).dataset
  default = made()
  examples = len(default.train.pool) + len(default.validation)
  assert len(default.validation) == round(0.1 * examples)
  assert len(default.train.partition) == 10
  assert len(set(default.train.partition.sizes)) == 1
  assert len(made(validation=0.4).validation) == round(0.4 * examples)
  assert made(validation=0).validation is None
  assert len(set(made(partition_rule='paper').train.partition.sizes)) > 1
  assert len(made(num_clients=3).train.partition) == 3


def test_the_set_of_eurlexs_size():
  task = registry.get('sparse-words-eurlex-sets')
  dataset = task.load('', {**task.option_values(), 'validation': 0}).dataset
  assert len(dataset.train.pool) == 15_539
  assert len(dataset.test) == 3809
  assert dataset.num_classes == 3993
  assert dataset.train.partition.sizes.tolist() == [1553] * 10
