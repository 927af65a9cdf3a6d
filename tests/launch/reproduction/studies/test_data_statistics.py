"""Statistics of data sets and class counts by alpha, and what is published of them."""

import types

import numpy as np
import pytest
import scipy.sparse

from launch.reproduction import judge
from launch.reproduction import results
from launch.reproduction.studies import data_statistics
from tasks import registry as tasks
from tasks.papers import data
from tasks.papers import registry
from tasks.papers import table
from tests.launch.reproduction import small_table
from tff_xc import errors
from tff_xc.data import client_data
from tff_xc.data import partition
from tff_xc.data import pool
from tff_xc.data import sparse

STATISTICS = [v for v in vars(data).values() if isinstance(v, str)]


def federated(y, *, n, x=None, **more):
  """Returns clients with examples 0 and 1, 2 to 4, and none; 5 is of nobody."""
  x = np.zeros([len(y), 2]) if x is None else x
  clients = partition.Partition(['a', 'b', 'c'], [0, 2, 5, 5], np.arange(5))
  train = client_data.PartitionedClientData(pool.in_memory(x, y), clients)
  test = pool.in_memory(x[:3], y[:3])
  return client_data.FederatedDataset('t', n, train, test, **more)


def test_statistics_of_classes_and_label_sets():
  measured = lambda dataset: data_statistics.statistics(
    dataset, data_statistics._class_counts(dataset)
  )
  found = measured(federated(np.array([0, 1, 1, 1, 2, 3]), n=5))
  assert found == {
    data.CLIENTS: 2,
    data.CLASSES: 5,
    data.EXAMPLES: 5,
    data.MEAN: 2.5,
    data.STD: 0.5,
    data.HELD: 2,
    data.MOST_HELD: 2,
    data.TEST: 3,
    data.ALL: 8,
    # p = .2 .6 .2; of a .3 + .1 + .2, of b .2 + 1/15 + 2/15.
    data.EMD: pytest.approx((2 * 0.6 + 3 * 0.4) / 5),
  }
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
  assert found[data.EXAMPLES] == 6  # Also those that no client has.
  assert found[data.LABELS] == pytest.approx(8 / 6)
  assert found[data.POSITIVES] == 2
  assert found[data.FEATURES] == 9
  assert found[data.HELD] == 2.5
  assert data.EMD not in found


def resolved(name, scale, task=None, **given):
  return small_table.resolved(name, scale, task, **given)[1]


def lines_of(config, folder, monkeypatch, *there):
  """Measures where every task `there` has one data set, and others no files."""
  loaded = federated(np.array([0, 1, 1, 1, 2, 3]), n=5), None

  def get(name):
    def find(directory):
      if name not in there:
        raise errors.InputError(f'no {name} in {directory}')

    return types.SimpleNamespace(load=lambda *_: loaded, find=find)

  monkeypatch.setattr(tasks, 'get', get)
  return results.frame(data_statistics.measure(config, folder))


def test_clients_and_classes_are_drawn(tmp_path, monkeypatch):
  found = registry.RESULTS['fedvc/fig3']
  config = resolved(found.name, 'small')
  lines = lines_of(config, tmp_path, monkeypatch, 'glyphs-landmarks')
  assert {path.name for path in tmp_path.iterdir()} == {
    *('glyphs-landmarks.png', 'glyphs-landmarks_classes.png')
  }
  [cells] = results.Measured(found, 'small', lines).tables()
  assert ('clients', '2', 'exactly 1,262', 'no') in cells.rows
  assert ('training examples', '5', '–', '–') in cells.rows


def test_the_verdict_is_on_all_published_values(tmp_path, monkeypatch, capsys):
  found = registry.RESULTS['turbosvm-fl/fig3']
  config = resolved(found.name, 'paper', data_dir=str(tmp_path))
  with pytest.raises(errors.InputError, match='these 3 tasks are') as told:
    data_statistics.measure(config, tmp_path)
  for task in ('femnist', 'celeba', 'shakespeare'):
    assert f'\n  {task}: no {task} of LEAF in {tmp_path}' in str(told.value)
  lines = lines_of(config, tmp_path, monkeypatch, 'femnist')
  verdict, why, _ = judge.judge(found, lines, 'paper')
  assert verdict == judge.Verdict.NOT  # 2 clients, not 3,195.
  assert why.startswith('3 of 3 published values')
  assert why.endswith('the data of celeba, shakespeare are missing')
  assert 'celeba: no celeba in ' in capsys.readouterr().out
  [cells] = results.Measured(found, 'paper', lines).tables()
  row = ('celeba: examples a client, mean', '21.4', 'its files are missing')
  assert row in [each[:3] for each in cells.rows]
  assert [path.name for path in tmp_path.iterdir()] == ['result.png']


def test_numbers_that_the_paper_does_not_have_reproduce_nothing(
  tmp_path, monkeypatch
):
  of = lambda name: registry.RESULTS[name].published
  assert not any('bibtex' in each for each in of('fedmlh/table1'))
  assert 'femnist: clients' not in of('turbosvm-fl/table1')  # Derived.
  assert 'inaturalist-user-120k: test examples' not in of('fedvc/fig2')
  assert 'amazoncat-13k: test examples' not in of('fedaws/table2')
  assert 'amazoncat-13k: classes' in of('fedaws/table2')
  found = registry.RESULTS['fedaws/table2']
  _, [(each, _)] = config = resolved(found.name, 'paper', 'bibtex')
  values = {name: number.least for name, number in each.numbers.items()}
  monkeypatch.setattr(data_statistics, 'statistics', lambda *_: values)
  lines = lines_of(config, tmp_path, monkeypatch, 'bibtex')
  assert judge.judge(found, lines, 'paper').verdict == judge.Verdict.NOT_RUN
  [cells] = results.Measured(found, 'paper', lines).tables()
  assert "the repository's" in cells.rows[0][1]


def test_flags_are_checked():
  with pytest.raises(errors.InputError, match='--rounds: fedmlh/table1 has'):
    resolved('fedmlh/table1', 'small', rounds=3)
  with pytest.raises(errors.InputError, match=r'--task=sop: fedvc/fig2 --sca'):
    resolved('fedvc/fig2', 'paper', 'sop')
  _, [(each, config)] = resolved('turbosvm-fl/table1', 'paper', 'femnist')
  assert each.task == config['task'] == 'femnist'
  assert config['options']['min_examples'] == 1


@pytest.mark.parametrize('name', data.STATISTICS)
def test_sets_are_of_tasks_and_numbers_of_statistics(name):
  found = registry.RESULTS[name]
  [small], published = data.sets(name, 'small'), data.sets(name, 'paper')
  assert found.module == 'data_statistics'
  assert tasks.get(small.task).find is None  # Always there.
  for each in (small, *published):
    task = tasks.get(each.task)
    assert set(each.options) <= set(task.option_values())
    classes = each.numbers.get(data.CLASSES)
    if classes and task.num_classes:
      assert classes.least == classes.most == task.num_classes
    for statistic, number in each.numbers.items():
      assert statistic in STATISTICS
      assert number.least <= number.most
      if number.printed:
        value = float(number.printed.replace(',', ''))
        assert number.least <= value <= number.most
  own = [n for s in published for n in s.numbers.values() if not n.origin]
  assert 0 < len(own) == len(found.published)


def test_labels_of_an_example_and_of_a_label_agree():
  """The three sets of FedAwS's Table 2: N times one is n times the other."""
  for each in data.sets('fedaws/table2', 'paper')[:3]:
    of = lambda name, each=each: float(
      each.numbers[name].printed.replace(',', '')
    )
    labels, positives = (
      of(data.LABELS) * of(data.EXAMPLES),
      of(data.POSITIVES) * of(data.CLASSES),
    )
    assert labels == pytest.approx(positives, rel=2e-3)


@pytest.mark.slow
def test_the_distances_by_alpha_are_as_derived(tmp_path):
  found = registry.RESULTS['fedvc/fig10']
  for scale in table.SCALES:
    module, config = small_table.resolved(found.name, scale)
    assert len(config) == 2 * 8
  lines = results.frame(module.measure(config, tmp_path))
  assert judge.judge(found, lines, 'small') == (
    *(judge.Verdict.SHAPE, 'all 16 expected values hold', ()),
  )
  grid, _ = results.Measured(found, 'small', lines).tables()
  assert {row[-1] for row in grid.rows} == {'500'}
  held = [float(row[3]) for row in grid.rows]
  for of_set in (held[:8], held[8:]):
    assert of_set == sorted(of_set, reverse=True)
    assert of_set[-1] == 1
  assert (tmp_path / 'result.png').exists()
