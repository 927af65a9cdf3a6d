"""FedMLH's theory on a task's labels: the table, the values and the picture."""

import json
import types

import numpy as np
import pytest
import scipy.sparse

from launch.reproduction import judge
from launch.reproduction import results
from launch.reproduction import studies
from launch.reproduction.studies import fedmlh_theory
from tasks.papers import fedmlh
from tasks.papers import registry
from tests.launch.reproduction import small_table
from tff_xc import errors
from tff_xc.data import client_data
from tff_xc.data import hashing
from tff_xc.data import partition
from tff_xc.data import pool
from tff_xc.data import sparse
from tff_xc.measure import hashed_labels

TASK = 'sparse-words-sets'
SMALL = {'num_classes': 60, 'num_features': 40, 'hash_buckets': 7}


def resolved(*given, **flags):
  return small_table.resolved('fedmlh/theory', *given, **flags)[1]


@pytest.mark.parametrize(
  'clients', [pytest.param(1, marks=pytest.mark.slow), 5]
)
def test_a_table_and_a_picture(clients, tmp_path):
  config = resolved('small', TASK, **SMALL, num_clients=clients)
  found = []
  for name in 'ab':
    fedmlh_theory._theory.cache_clear()  # Both are measured.
    (tmp_path / name).mkdir()
    found.append(fedmlh_theory.measure(config, tmp_path / name))
  assert found[0] == found[1]
  of = {line['row']: line['mean'] for line in found[0]}
  assert (of['labels'], of['tables'], of['buckets of a table']) == (60, 4, 7)
  [least] = [value for row, value in of.items() if row.startswith('least')]
  assert least == 14  # (60 · 59 / 2 / 0.05)^(1/4) = 13.7
  expected = of['expected, an example counts once a label']
  observed = of['of its buckets, mean, an example counts once']
  alone = of['positive examples of an infrequent label, mean']
  assert alone < observed <= 1.05 * expected
  assert of['bound of Lemma 1'] < expected
  drawn = of['mean of 1,000 hash functions']
  assert drawn == pytest.approx(expected, rel=0.05)
  assert of['standard errors above the bound of Lemma 1'] > 3  # B is small.
  assert of['pairs of clients and tables'] == 4 * clients * (clients - 1)
  assert not any(v for row, v in of.items() if row.startswith('pairs whose'))
  if clients > 1:
    rising = [
      *(
        'over the buckets of a table, mean',
        'over twice as many buckets, mean',
      ),
      'over four times as many buckets, mean',
      'KL divergence of two clients over labels, mean',
    ]
    assert [*map(of.get, rising)] == sorted({of[row] for row in rising})
  pictures = [(tmp_path / name / 'result.png').read_bytes() for name in 'ab']
  assert pictures[0] == pictures[1]
  assert pictures[0].startswith(b'\x89PNG')


@pytest.mark.slow
def test_at_the_papers_size_the_sets_that_are_there_are_measured(
  tmp_path, monkeypatch, capsys
):
  where = {'data_dir': str(tmp_path)}
  configs = resolved('paper', **where)
  tasks_ = [each['task'] for each in configs]
  assert tasks_ == [each.task for each in fedmlh.CONFIGURATIONS]
  [alone] = resolved('paper', 'bibtex-sets', **where)
  assert alone['task'] == 'bibtex-sets'
  with pytest.raises(errors.InputError) as told:
    fedmlh_theory.measure(configs, tmp_path)
  lines = str(told.value).splitlines()
  assert [line.split(':')[0].strip() for line in lines[1:]] == tasks_
  assert '--task=' in lines[-1]
  # Two are there.
  there = tasks_[:2]

  def of(task):
    def find(data_dir):
      if task not in there:
        raise errors.InputError('no files')

    return types.SimpleNamespace(find=find)

  [config] = resolved('small', TASK, **SMALL)
  theory = fedmlh_theory._theory(json.dumps(config, sort_keys=True))
  monkeypatch.setattr(studies.tasks, 'get', of)
  monkeypatch.setattr(fedmlh_theory, '_theory', lambda config: theory)
  measured = fedmlh_theory.measure(configs, tmp_path)
  found, lines = registry.RESULTS['fedmlh/theory'], results.frame(measured)
  assert {*lines['task'][lines['mean'] != '']} == {*there}
  assert all((tmp_path / f'{task}.png').is_file() for task in there)
  # What two sets say is not said of all four.
  verdict, why, _ = judge.judge(found, lines, 'paper')
  assert verdict == judge.Verdict.NOT_RUN
  assert why.endswith(f'{", ".join(tasks_[2:])} are missing')
  [cells] = results.Measured(found, 'paper', lines).tables()
  assert f'{there[1]}: labels' in [row[0] for row in cells.rows]
  missing = f'missing: {", ".join(tasks_[2:])}: no files'
  assert missing in capsys.readouterr().out


@pytest.mark.slow
def test_results_of_one_configuration_are_measured_once(tmp_path, monkeypatch):
  fedmlh_theory._theory.cache_clear()
  theory, calls = fedmlh_theory.theory, []
  monkeypatch.setattr(
    fedmlh_theory, 'theory', lambda *a: calls.append(a) or theory(*a)
  )
  made = []
  for changes in ({}, {}, {'data_seed': 1}):
    config = resolved('small', TASK, **SMALL, **changes)
    made.append(fedmlh_theory.measure(config, tmp_path))
    picture = tmp_path / 'result.png'
    picture.unlink()  # It is drawn each time.
  assert len(calls) == 2
  assert made[0] == made[1] != made[2]


def test_a_sets_theory_is_that_of_plain_loops():
  """80 examples of 30 labels with 3 clients; the last ten are with nobody."""
  random = np.random.default_rng(2)
  y = random.random([80, 30]) < 0.1
  y[:, 3] = False
  y[0, 5] = True
  x = np.float32(random.normal(size=[80, 6]) + 3 * y[:, 10:16])
  examples = pool.in_memory(x, scipy.sparse.csr_matrix(y))
  clients = partition.of_owners(np.arange(70) % 3)
  dataset = client_data.FederatedDataset(
    name='small',
    num_classes=30,
    train=client_data.PartitionedClientData(examples, clients),
    propensity=sparse.Propensity(y.sum(axis=0), 80),
  )
  found = fedmlh_theory.theory(dataset, 2, 4)
  rows = np.stack(
    [y[:70][np.arange(70) % 3 == k].sum(axis=0) for k in range(3)]
  )
  others = ~np.eye(3, dtype=bool)
  both = [hashing.buckets(np.arange(30), table, 4) for table in range(2)]
  summed = lambda bucket, size: hashed_labels.divergences(
    np.array([[c[bucket == b].sum() for b in range(size)] for c in rows])
  )[others]
  for table, bucket in enumerate(both):
    for label in range(30):
      same = y[:, bucket == bucket[label]]
      assert found.observed[table, label] == same.any(axis=1).sum()
  for place, size in enumerate((4, 8, 16)):
    of_buckets = [
      summed(hashing.buckets(np.arange(30), table, size), size)
      for table in range(2)
    ]
    np.testing.assert_allclose(
      found.of_buckets[place], np.concatenate(of_buckets)
    )
  together = summed(4 * both[0] + both[1], 16)
  of_tables = [summed(both[0], 4), together]
  np.testing.assert_allclose(found.of_tables, of_tables)
  np.testing.assert_array_equal(found.client_counts, rows)
  assert (found.observed.max(axis=0) >= y.sum(axis=0)).all()
  over_labels = hashed_labels.divergences(rows)[others]
  np.testing.assert_allclose(found.of_labels, [*over_labels, *over_labels])
  assert (found.of_buckets < found.of_labels).all()
  # The three most frequent labels, on the client with most.
  counts = y.sum(axis=0)
  most = sorted(range(30), key=lambda label: -counts[label])[:3]
  wanted = [max(rows[:, c]) / (sum(rows[:, c]) / 3) for c in most]
  np.testing.assert_allclose(fedmlh_theory._concentration(found), wanted)
  of = fedmlh_theory._values(found)
  exponent = "exponent of a centroid's error over its positives (Theorem 1)"
  assert of[exponent] == pytest.approx(-1, abs=0.05)
  rare = counts < 0.01 * 80
  assert of['share of all labels'] == rare.mean()
  assert of['share of all positives'] == counts[rare].sum() / counts.sum()


def test_the_centroids_of_buckets_are_as_much_nearer_as_they_have_more_positives():
  """Rare labels 2 to 4 of examples that are alike, label 5 of others; two buckets."""
  random = np.random.default_rng(7)
  label = np.concatenate([np.zeros(600), np.repeat([2, 3, 4, 5], 6)]).astype(
    int
  )
  y = np.eye(6, dtype=bool)[label]
  x = np.float32(random.normal(size=[624, 5]))

  def ratios(x, bucket_of):
    examples = pool.in_memory(x, scipy.sparse.csr_matrix(y))
    with pytest.MonkeyPatch.context() as patch:
      patch.setattr(hashing, 'buckets', lambda *_: np.array(bucket_of))
      frequent = y.sum(axis=0) > 10
      return fedmlh_theory._centroids(examples, frequent, 2)

  by_positives, alone = ratios(x, [0, 0, 1, 2, 3, 4])
  np.testing.assert_allclose(alone, 1, rtol=0.35)
  wanted = x[:600].var(axis=0, ddof=1).sum() / np.array([2, 4, 8, 16, 32, 64])
  np.testing.assert_allclose(by_positives, wanted, rtol=0.35)
  _, joined = ratios(x, [0, 0, 1, 1, 1, 1])
  assert (
    0.6 < joined.mean() < 1.4
  )  # Four times the positives, a quarter of the error.
  apart = x + 4 * (label == 5)[:, None]
  assert ratios(np.float32(apart), [0, 0, 1, 1, 1, 1])[1].mean() < 0.4


def test_a_hash_that_is_not_uniform_is_told(monkeypatch):
  """Infrequent labels that no frequent one joins break Lemma 1's bound."""
  y = np.zeros([400, 30], bool)
  y[:, :5], y[0] = True, True
  examples = pool.in_memory(
    np.float32(y[:, :1] + np.arange(400)[:, None]), scipy.sparse.csr_matrix(y)
  )
  dataset = client_data.FederatedDataset(
    name='small',
    num_classes=30,
    train=client_data.PartitionedClientData(
      examples, partition.of_owners(np.arange(400) % 2)
    ),
    propensity=sparse.Propensity(y.sum(axis=0), 400),
  )
  errors_above = lambda: fedmlh_theory._values(
    fedmlh_theory.theory(dataset, 1, 4)
  )['standard errors above the bound of Lemma 1']
  assert errors_above() > -3
  apart = lambda ids, seed, size: np.where(ids < 5, 0, 1 + ids % (size - 1))
  monkeypatch.setattr(hashing, 'buckets', apart)
  assert errors_above() < -3
