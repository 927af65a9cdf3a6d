"""The tasks whose examples keep all labels."""

from tasks import label_sets as tasks
from tasks import registry


def test_options_reach_the_data():
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
  given = tasks._options({**small, 'published_reading': True, 'data_seed': 7})
  assert given.published_reading
  assert given.seed == 7
  assert given.hashed_features == 300


def test_the_set_of_eurlexs_size():
  task = registry.get('sparse-words-eurlex-sets')
  dataset = task.load('', {**task.option_values(), 'validation': 0}).dataset
  assert len(dataset.train.pool) == 15_539
  assert len(dataset.test) == 3809
  assert dataset.num_classes == 3993
  assert dataset.train.partition.sizes.tolist() == [1553] * 10
