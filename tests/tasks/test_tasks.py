"""Tasks: algorithms accept their defaults, and models fit their data."""

import functools

import numpy as np
import pytest

from datasets import cifar
from tasks import registry
from tests import tiny
from tests.datasets import cifar_on_disk as cifar_on_disk
from tff_xc import errors, heads
from tff_xc.algorithms import registry as algorithms


def options_of(task, **changes):
  return task.option_values() | changes


@pytest.mark.parametrize('name', registry.TASKS)
def test_defaults_are_of_hyperparameters_and_within_bounds(name):
  task = registry.get(name)
  for defaults in (task.defaults, *task.by_algorithm.values()):
    assert set(defaults) <= set(algorithms.HYPERPARAMETERS)
  for algorithm in ('fedaws', 'fedaws_posonly'):
    found = algorithms.get(algorithm)
    usual = {**task.defaults, 'clients_per_round': task.clients_per_round}
    made = found(**found.resolve({}, usual, task.by_algorithm.get(algorithm, {})))
    assert not [w for w in made.warnings(10**6, 1) if 'spreadout' in w]


@pytest.mark.parametrize(
  'name',
  [
    # `test_glyphs` loads the largest preset.
    pytest.param(n, marks=[pytest.mark.slow] * (n == 'glyphs-imagenet21k'))
    for n in registry.TASKS
  ],
)
def test_tasks_load_what_they_say_and_know_their_classes(name):
  task = registry.get(name)
  known = task.known_classes(options_of(task))
  is_drawn = name.startswith(('glyphs', 'features'))
  if not is_drawn and name != 'sparse-words':
    assert (known is None) == task.data_is_named
    return
  dataset, model = task.load('', options_of(task))
  assert dataset.name == name
  assert model.num_classes == dataset.num_classes == known
  if is_drawn:
    assert model.encoder.example_spec == dataset.train.element_type_structure['x']
  assert dataset.test is not None or 'top1' not in task.metrics
  assert (dataset.retrieval is not None) == ('map@10' in task.metrics)
  assert task.clients_per_round <= len(dataset.train.client_ids)


def test_each_class_of_glyphs_may_have_a_client():
  task = registry.get('glyphs')
  shape = {'num_classes': 10, 'num_clients': 10, 'classes_per_client': 1}

  def held(**more):
    train = task.load('', task.option_values() | shape | more)[0].train
    return [{*train.labels(client).tolist()} for client in train.client_ids]

  assert held(consecutive_classes=True) == [{c} for c in range(10)]
  assert len(set().union(*held())) < 10  # Each client draws its own classes.


def test_options_of_glyphs_reach_the_data():
  task = registry.get('glyphs')
  shape = {
    'num_classes': 10**6,
    'num_clients': 7,
    'classes_per_client': 4,
    'examples_per_client': 9,
  }

  def labels_of(dataset):
    return [dataset.train.labels(client) for client in dataset.train.client_ids]

  dataset, model = task.load('', options_of(task, **shape, data_seed=3))
  labels = labels_of(dataset)
  assert (model.num_classes, len(labels)) == (10**6, 7)
  assert (len(labels[0]), len(set(labels[0]))) == (9, 4)
  # Clients may have different numbers of classes.
  ends = {'classes_least': 2, 'classes_most': 40}
  labels = labels_of(task.load('', options_of(task, **ends)).dataset)
  classes = [len(set(each)) for each in labels]
  assert min(classes) == 2
  assert 30 < max(classes) <= 40
  assert max(map(len, labels)) > 5 * min(map(len, labels))
  with pytest.raises(errors.InputError, match='--classes_most=0: the mean, '):
    task.load('', options_of(task, classes_least=2))
  # Retrieval works for any number of unseen classes.
  task = registry.get('glyphs-retrieval')
  dataset, model = task.load('', options_of(task, retrieval_classes=5))
  assert set(dataset.retrieval.labels) == set(range(5))
  assert set(task.metrics_of(dataset, model)) == set(task.metrics)


@pytest.mark.parametrize(
  ('name', 'head', 'embedding_dim'),
  [('cifar10', heads.CosineHead, 8), ('cifar10-dirichlet', heads.LinearHead, 192)],
)
def test_cifars_networks_are_those_of_their_papers(
  name, head, embedding_dim, tmp_path, monkeypatch
):
  counts = cifar_on_disk.COUNTS['cifar10']
  load = functools.partial(cifar.load, expected=counts)
  monkeypatch.setattr(cifar, 'load', load)
  folder = cifar_on_disk.write(tmp_path, cifar_on_disk.files('cifar10', 'binary'))
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
  x, numbers = np.zeros([9, 16, 16, 3], np.uint8), np.arange(9)
  path = tmp_path / 'mine.npz'
  np.savez(path, x=x, y=numbers % 4, client=numbers % 2)
  task = registry.get('images')
  dataset, model = task.load(str(path), options_of(task))
  assert model.num_classes == 4
  assert task.metrics_of(dataset, tiny.model()) == ('train_top1',)


@pytest.mark.parametrize(
  ('name', 'classes', 'features', 'commonest'),
  [('delicious', 983, 500, 0.4075), ('bibtex', 159, 1836, 0.0775)],
)
def test_multi_label_sets_from_the_real_files(data_dir, name, classes, features, commonest):
  task = registry.get(name)
  dataset, model = task.load(str(data_dir), options_of(task))
  assert model.num_classes == classes
  assert model.encoder.example_spec.num_features == features
  assert task.metrics_of(dataset, tiny.model())[:3] == ('p@1', 'p@3', 'p@5')
  assert all(len(set(dataset.train.labels(c))) == 1 for c in dataset.train.client_ids)
  # This is the P@1 of a model that always predicts the clients' most frequent label.
  counts = np.bincount(dataset.train.owned_labels()[1])
  assert round(dataset.test.labels[:, counts.argmax()].mean(), 4) == commonest


def test_options_of_label_sets_reach_the_data():
  task = registry.get('sparse-words-sets')
  small = {**task.option_values(), 'num_classes': 30, 'num_features': 40}

  def made(**more):
    return task.load('', {**small, **more}).dataset

  default = made()
  examples = len(default.train.pool) + len(default.validation)
  assert len(default.validation) == round(0.1 * examples)
  assert len(set(default.train.partition.sizes)) == 1
  other = made(validation=0, partition_rule='paper', num_clients=3)
  assert other.validation is None
  assert len(set(other.train.partition.sizes)) == 3


def test_options_of_groups_and_features_reach_the_data():
  task = registry.get('features-landmarks')
  options = options_of(task, num_features=5)
  dataset, model = task.load('', options)
  assert dataset.train.pool.read(np.arange(3)).shape == (3, 5)
  assert model.encoder.embedding_dim == 64
  group = np.arange(2028) * options['class_groups'] // 2028
  labels = dataset.train.labels(dataset.train.client_ids[0])
  counts = np.bincount(group[np.unique(labels)])
  assert 0.7 < counts.max() / counts.sum() < 0.95
  with pytest.raises(errors.InputError, match='class_groups is 201'):
    glyphs = registry.get('glyphs')
    glyphs.load('', options_of(glyphs, class_groups=201))
