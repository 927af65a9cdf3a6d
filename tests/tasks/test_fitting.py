"""Which algorithm fits which task: all pairs resolve, or are refused."""

import pytest

from tasks import experiment
from tasks import registry as tasks
from tests.launch import light
from tff_xc import errors
from tff_xc.algorithms import registry as algorithms

COSINES = {'fedaws', 'fedaws_baseline1', 'fedaws_baseline2'}
ONE_LABEL = COSINES | {'fedss', 'negonly', 'posonly', 'fedaws_posonly', 'fedir'}
# Tasks of one's own data need a name; others have a default.
MINE = {'data_dir': 'mine'}
LINEAR = {'femnist', 'celeba', 'shakespeare', 'glyphs-femnist'} | {
  'cifar10-dirichlet',
  'cifar100-dirichlet',
}


def refused_by(task):
  if task.endswith('-sets'):
    return ONE_LABEL
  linear = task in LINEAR or task.startswith('inaturalist-')
  return COSINES if linear or task.endswith('-tff') else set()


@pytest.mark.parametrize('task', tasks.TASKS)
def test_a_task_refuses_what_does_not_fit_and_names_what_does(task):
  others = [a for a in algorithms.ALGORITHMS if a not in refused_by(task)]
  for algorithm in others:
    assert experiment.resolve(task, algorithm, MINE)['algorithm'] == algorithm
  for algorithm in refused_by(task):
    with pytest.raises(errors.InputError) as refusal:
      experiment.resolve(task, algorithm, MINE)
    assert str(refusal.value).endswith(f'or one of {", ".join(others)}')


@pytest.mark.parametrize(
  ('task', 'problem'),
  [
    ('bibtex-sets', 'examples with one label each, which --task=bibtex-sets'),
    ('femnist', 'cosine logits, which --task=femnist does not have'),
  ],
)
def test_the_command_refuses_before_it_reads_data(task, problem):
  done = light.call('train', f'--task={task}', '--algorithm=fedaws')
  light.assert_one_sentence(done, f'--algorithm=fedaws needs {problem}')


@pytest.mark.parametrize(
  ('task', 'algorithm', 'changes', 'problem'),
  [
    ('bibtex-sets', 'fedmlh', {'hash_buckets': 2**31 - 1}, '--hash_buckets='),
    (
      'bibtex-sets',
      'fedmlh',
      {'hash_tables': 1024, 'hash_buckets': 3_000_000},
      '--hash_buckets=',
    ),
    (
      'bibtex-sets',
      'fedavg',
      {'hashed_features': 2**31 - 1},
      '--hashed_features=',
    ),
    ('cifar10', 'fedavg', {'concentration': 0.5}, '--split=class, only'),
    (
      'cifar10-dirichlet',
      'fedavg',
      {'clients_per_class': 4},
      '--split=dirichlet, only with --split=class',
    ),
    (
      'sparse-text',
      'fedavg',
      {'classes_per_client': 2, 'split': 'iid:9', 'data_dir': 'a'},
      '--classes_per_client does not apply with --split=iid:9, only with',
    ),
    ('bibtex', 'fedmlh', {'select_features': True}, '--select_features does'),
    ('bibtex', 'fedmlh', {'feature_learning_rate': 0.1}, 'does not apply'),
  ],
)
def test_what_does_not_fit_is_refused(task, algorithm, changes, problem):
  with pytest.raises(errors.InputError, match=problem):
    experiment.resolve(task, algorithm, changes)


def test_fedmlh_sends_whole_networks_of_sparse_text():
  config = experiment.resolve('bibtex', 'fedmlh')
  assert config['options']['select_features'] is False


@pytest.mark.parametrize(
  ('name', 'rounds'), [('cifar10', 10_000), ('cifar100', 20_000)]
)
def test_cifar_has_the_published_rates(name, rounds):
  """Hsu, Qi and Brown (arXiv:2003.08082), section 6.5 and fig. 8."""
  config = experiment.resolve(f'{name}-dirichlet', 'fedavgm')
  expected = {
    'client_learning_rate': 0.01,
    'batch_size': 64,
    'weight_decay': 4e-4,
    'local_epochs': 1,
    'clients_per_round': 10,
    'server_momentum': 0.9,
  }
  assert config['rounds'] == rounds
  assert config['options']['num_clients'] == 100
  values = config['hyperparameters']
  assert expected.items() <= values.items()
