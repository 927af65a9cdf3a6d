"""Statistics of data sets, counted by hand, and what is published of them."""

import types

import numpy as np
import pytest
import scipy.sparse

from launch.reproduction import outcome
from launch.reproduction.studies import data_statistics
from launch.reproduction.studies import study
from tasks import registry as tasks
from tasks.papers import data_numbers
from tasks.papers import data_set
from tasks.papers import registry
from tff_xc import errors
from tff_xc.data import client_data
from tff_xc.data import partition
from tff_xc.data import pool
from tff_xc.data import sparse

NAMES = list(data_numbers.STATISTICS)


def federated(y, *, n, x=None, **more):
  """Returns clients with examples 0 and 1, 2 to 4, and none; 5 is of nobody."""
  x = np.zeros([len(y), 2]) if x is None else x
  clients = partition.Partition(['a', 'b', 'c'], [0, 2, 5, 5], np.arange(5))
  train = client_data.PartitionedClientData(pool.in_memory(x, y), clients)
  test = pool.in_memory(x[:3], y[:3])
  return client_data.FederatedDataset('t', n, train, test, **more)


def measured(dataset):
  counts = data_statistics._class_counts(dataset)
  return data_statistics.statistics(dataset, counts)


def test_statistics_of_classes():
  found = measured(federated(np.array([0, 1, 1, 1, 2, 3]), n=5))
  assert found == {
    data_set.CLIENTS: 2,
    data_set.CLASSES: 5,
    data_set.EXAMPLES: 5,
    data_set.MEAN: 2.5,
    data_set.STD: 0.5,
    data_set.HELD: 2,
    data_set.MOST_HELD: 2,
    data_set.TEST: 3,
    data_set.ALL: 8,
    # p = .2 .6 .2; of a .3 + .1 + .2, of b .2 + 1/15 + 2/15.
    data_set.EMD: pytest.approx((2 * 0.6 + 3 * 0.4) / 5),
  }


def test_statistics_of_label_sets():
  sets = np.zeros([6, 4], bool)
  for example, labels in enumerate([[0], [0, 1], [1], [2], [0, 1, 2], []]):
    sets[example, labels] = True
  found = measured(
    federated(
      scipy.sparse.csr_matrix(sets),
      n=4,
      x=scipy.sparse.csr_matrix(np.eye(6, 9)),
      propensity=sparse.Propensity(sets.sum(axis=0), 6),
    )
  )
  assert found[data_set.EXAMPLES] == 6  # Also those that no client has.
  assert found[data_set.LABELS] == pytest.approx(8 / 6)
  assert found[data_set.POSITIVES] == 2
  assert found[data_set.FEATURES] == 9
  assert found[data_set.HELD] == 2.5
  assert data_set.EMD not in found


def give_one_set(monkeypatch, *more):
  """Gives every task one data set; some have no files."""
  there = {'landmarks-user-160k', 'glyphs-landmarks', 'femnist', *more}
  loaded = federated(np.array([0, 1, 1, 1, 2, 3]), n=5), None

  def get(name):
    def find(directory):
      if name not in there:
        raise errors.InputError(f'no {name} in {directory}')

    return types.SimpleNamespace(load=lambda *_: loaded, find=find)

  monkeypatch.setattr(tasks, 'get', get)


def resolved(name, scale, task=None, **given):
  return study.resolve(registry.RESULTS[name], scale, task, given)


def test_clients_and_classes_are_drawn(tmp_path, monkeypatch):
  config = resolved('fedvc/fig3', 'small')
  give_one_set(monkeypatch)
  found = data_statistics.measure(config, tmp_path, tmp_path)
  assert found.pictures == (
    *('glyphs-landmarks.png', 'glyphs-landmarks_classes.png'),
  )
  assert {path.name for path in tmp_path.iterdir()} == set(found.pictures)
  of_clients = data_set.name('glyphs-landmarks', data_set.CLIENTS)
  assert found.values[of_clients] == 2
  [cells] = found.tables
  assert ('clients', '–', '2', 'no') in cells.rows
  assert ('training examples', '–', '5', '–') in cells.rows


def test_all_missing_sets_are_named(tmp_path):
  config = resolved('turbosvm-fl/fig3', 'paper', data_dir=str(tmp_path))
  with pytest.raises(errors.InputError) as told:
    data_statistics.measure(config, tmp_path, tmp_path)
  first, *lines = str(told.value).splitlines()
  assert first == 'the data of these 3 tasks are missing'
  for line, task in zip(
    lines, ('femnist', 'celeba', 'shakespeare'), strict=True
  ):
    assert line.startswith(f'  {task}: no {task} of LEAF in {tmp_path}')


def test_the_verdict_is_on_all_published_values(tmp_path, monkeypatch, capsys):
  found = registry.RESULTS['turbosvm-fl/fig3']
  config = resolved(found.name, 'paper')
  give_one_set(monkeypatch)
  outcome_ = study.conclude(found, 'paper', config, tmp_path)
  assert outcome_.verdict == outcome.Verdict.NOT  # 2 clients, not 3,195.
  assert outcome_.why.endswith('; 5 published values were not measured')
  assert len(outcome_.checked) == 3
  assert outcome_.tables[-1].rows[0] == ('celeba', 'its files are missing')
  assert 'celeba: no celeba in ' in capsys.readouterr().out
  assert outcome_.pictures == ('result.png',)


@pytest.mark.parametrize('task', ['bibtex', 'delicious'])
def test_a_set_that_is_not_in_the_paper_reproduces_nothing(
  task, tmp_path, monkeypatch
):
  found = registry.RESULTS['fedaws/table2']
  config = resolved(found.name, 'paper', task)
  [(each, _)] = config.sets
  values = {name: number.least for name, number in each.numbers.items()}
  give_one_set(monkeypatch, task)
  monkeypatch.setattr(data_statistics, 'statistics', lambda *_: values)
  outcome_ = study.conclude(found, 'paper', config, tmp_path)
  assert outcome_.verdict == outcome.Verdict.NOT_RUN
  assert outcome_.why == 'no published value was measured'
  [cells] = outcome_.tables
  assert {row[-1] for row in cells.rows} == {'yes'}  # As the repository has it.


def test_numbers_that_the_paper_does_not_have_are_of_no_expectation():
  of = lambda name: {each.of for each in registry.RESULTS[name].published}
  assert not any('bibtex' in each for each in of('fedaws/table2'))
  assert not any('bibtex' in each for each in of('fedmlh/table1'))
  assert 'femnist: clients' not in of('turbosvm-fl/table1')  # Derived.
  assert 'inaturalist-user-120k: test examples' not in of('fedvc/fig2')
  assert 'amazoncat-13k: test examples' not in of('fedaws/table2')
  assert 'amazoncat-13k: classes' in of('fedaws/table2')


def test_flags_are_checked():
  with pytest.raises(errors.InputError, match='--rounds: fedmlh/table1 has'):
    resolved('fedmlh/table1', 'small', rounds=3)
  message = r'--task=sop: fedvc/fig2 --scale=paper is of inaturalist-user-120k'
  with pytest.raises(errors.InputError, match=message):
    resolved('fedvc/fig2', 'paper', 'sop')
  [(each, config)] = resolved('turbosvm-fl/table1', 'paper', 'femnist').sets
  assert each.task == config['task'] == 'femnist'
  assert config['options']['min_examples'] == 1


@pytest.mark.parametrize('name', NAMES)
def test_sets_are_of_tasks_and_numbers_of_statistics(name):
  found = registry.RESULTS[name]
  statistics = data_numbers.STATISTICS[name]
  assert found.module == 'data_statistics'
  assert tasks.get(statistics.small.task).find is None  # Always there.
  for each in (statistics.small, *statistics.sets):
    task = tasks.get(each.task)
    assert set(each.options) <= set(task.option_values())
    classes = each.numbers.get(data_set.CLASSES)
    if classes and task.num_classes:
      assert classes.least == classes.most == task.num_classes
    for number in each.numbers.values():
      assert number.least <= number.most
      if number.printed:
        value = float(number.printed.replace(',', ''))
        assert number.least <= value <= number.most
  own = [n for s in statistics.sets for n in s.numbers.values() if not n.origin]
  assert 0 < len(own) == len(found.published)


def test_labels_of_an_example_and_of_a_label_agree():
  """The three sets of FedAwS's Table 2: N times one is n times the other."""
  for each in data_numbers.STATISTICS['fedaws/table2'].sets[:3]:
    labels, positives, examples, classes = (
      float(each.numbers[name].printed.replace(',', ''))
      for name in (
        *(data_set.LABELS, data_set.POSITIVES),
        *(data_set.EXAMPLES, data_set.CLASSES),
      )
    )
    assert labels * examples == pytest.approx(positives * classes, rel=2e-3)
