"""The study of personalization: its runs can be made, and its table ranks them."""

import importlib.util
import pathlib

import numpy as np

from tasks import experiment

_FILE = pathlib.Path(__file__).parents[2] / 'tools' / 'personalization.py'


def study():
  spec = importlib.util.spec_from_file_location('personalization', _FILE)
  module = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(module)
  return module


def test_all_runs_of_the_study_resolve():
  of = study()
  for task, (rounds, shared, algorithms) in of._STUDY.items():
    for algorithm, own in algorithms.items():
      changes = {**of._HELD_OUT, **shared, **own, 'rounds': rounds}
      experiment.resolve(task, algorithm, changes)


def test_the_table_has_means_deviations_and_ranks_of_each_part():
  rows = [
    {'task': 't', 'algorithm': name, 'clients': 'trained'}
    | {'global': before + seed, 'all': after + seed}
    for name, before, after in (('a', 10, 40), ('b', 20, 30))
    for seed in (0, 2)
  ]
  table = study()._table(rows)
  assert table.to_dict('list') == {
    'task': ['t', 't'],
    'clients': ['trained', 'trained'],
    'algorithm': ['b', 'a'],
    'global %': ['21.0 ± 1.4', '11.0 ± 1.4'],
    'rank, global': [1, 2],
    'all %': ['31.0 ± 1.4', '41.0 ± 1.4'],
    'rank, all': [2, 1],
  }


def test_every_run_scores_the_same_clients_of_each_part():
  part = np.array(['trained'] * 5 + ['unseen'] * 2)
  chosen = study()._chosen(part, 3)
  assert (chosen[:5].sum(), chosen[5:].sum()) == (3, 2)
  np.testing.assert_array_equal(chosen, study()._chosen(part, 3))
