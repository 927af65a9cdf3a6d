"""The LEAF tasks: TurboSVM-FL's settings, and rounds on small files."""

import numpy as np
import pytest

from datasets import cache_folder
from tasks import configuration, experiment, leaf, registry, task as found
from tests.datasets.leaf import (
  on_disk,
  test_celeba as celeba,
  test_shakespeare as shakespeare,
  test_tff_sets as tff_sets,
  tff_on_disk,
)

# From TurboSVM-FL, Table 8 and code: learning rates of clients, of FedAdam's server and of the
# logits, batch size, and the minimum number of examples of a user.
SETTINGS = {
  'femnist': (0.1, 1e-3, 1e-2, 64, 64),
  'celeba': (1e-3, 1e-3, 1e-2, 8, 8),
  'shakespeare': (1.0, 1e-2, 1e-1, 64, 64),
}
LEAFS_NAME = {'emnist-tff': 'femnist', 'celeba-tff': 'celeba', 'shakespeare-tff': 'shakespeare'}
NAMES = [*SETTINGS, *LEAFS_NAME]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
  monkeypatch.setenv(cache_folder.VARIABLE, str(tmp_path / 'cache'))


def write(name, folder):
  """Writes the files of a task. Returns its number of clients."""
  if name.endswith('-tff'):
    of_tff = name.removesuffix('-tff')
    tff_on_disk.write_hdf5(folder, of_tff, tff_sets.CONTENT[of_tff]())
    return 7 if of_tff == 'celeba' else 9
  if name == 'femnist':
    users = {f'w{i}': on_disk.writer(i, 3) for i in range(10)}
    on_disk.write(folder / 'femnist/all_data.json', users)
  elif name == 'celeba':
    celeba.write(folder)
  else:
    shakespeare.write_json(folder, shakespeare.users())
  return 9


@pytest.mark.parametrize('name', NAMES)
def test_settings_are_those_of_turbosvm_fl(name):
  client, server, logits, batch, least = SETTINGS[LEAFS_NAME.get(name, name)]
  for algorithm, rates in (
    ('fullsoftmax', {}),
    ('fedadam', {'server_learning_rate': server}),
    ('fedams', {'server_learning_rate': server}),
    ('fedaws_softmax', {'logits_learning_rate': logits}),
    ('turbosvm', {'logits_learning_rate': logits}),
  ):
    config = configuration.resolve(name, algorithm)
    assert config['rounds'] == 201
    assert config['eval_every'] == (5 if 'shakespeare' in name else 1)
    options = config['options']
    assert (options['min_examples'], options['test_examples']) == (least, 0)
    expected = {
      'client_learning_rate': client,
      'batch_size': batch,
      'local_epochs': 1,
      'clients_per_round': 8,
      **rates,
    }
    assert expected.items() <= config['hyperparameters'].items()


@pytest.mark.parametrize('name', NAMES)
def test_small_files_load_as_the_encoder_takes_them(name, tmp_path):
  clients = write(name, tmp_path)
  task = registry.get(name)
  task.find(str(tmp_path))
  options = task.option_values() | {'min_examples': 1, 'test_examples': 2}
  dataset, model = task.load(str(tmp_path), options)
  assert dataset.name == name
  assert len(dataset.train.client_ids) == clients
  assert len(dataset.test) == 2
  assert model.num_classes == dataset.num_classes == task.num_classes
  assert model.encoder.example_spec == dataset.train.element_type_structure['x']
  x, y = dataset.train.examples(dataset.train.client_ids[0])
  assert x.shape[1:] == model.encoder.example_spec.shape
  assert len(x) == len(y) > 0


@pytest.mark.parametrize(
  'order',
  [
    ('users', 'num_samples', 'user_data'),
    ('num_samples', 'users', 'user_data'),
    ('user_data', 'users', 'num_samples'),
  ],
)
def test_a_sample_of_the_users_is_told(order, tmp_path, monkeypatch):
  task = registry.get('femnist')

  def writers(*users):
    return {f'f{u}': on_disk.writer(u, 2) for u in users}

  folder = tmp_path / 'femnist'
  on_disk.write(folder / 'train/a.json', writers(1, 2, 3), order=order)
  on_disk.write(folder / 'test/a.json', writers(3, 4), order=order)
  assert found.part(task, str(tmp_path)) == '4 of 3,550 users'
  assert isinstance(task.find(str(tmp_path)), found.Part)
  monkeypatch.setitem(leaf._USERS, 'femnist', 4)
  assert found.part(task, str(tmp_path)) == ''
  assert found.part(task, str(tmp_path / 'none')) == ''
  (folder / 'test/a.json').write_text('{"users": [')
  assert found.part(task, str(tmp_path)) == ''


def test_no_more_is_read_than_the_names(tmp_path):
  on_disk.write(tmp_path / 'femnist/all_data/a.json', {'f1': ([], [])})
  with open(tmp_path / 'femnist/all_data/a.json', 'a') as file:
    file.truncate(2**40)  # The file is extended with a hole, which takes no space on the disk.
  assert found.part(registry.get('femnist'), str(tmp_path)) == '1 of 3,550 users'


@pytest.mark.slow
def test_two_rounds_of_five_real_writers(tmp_path, data_dir, in_process):
  given = {
    'min_examples': 1,
    'clients_per_round': 3,
    'rounds': 2,
    'embedding_dim': 16,
    'data_dir': str(data_dir),
  }
  config = configuration.resolve('femnist', 'fullsoftmax', given)
  summary = experiment.assemble(config).run(str(tmp_path / 'run'))
  assert np.isfinite(summary['final']['top1'])
