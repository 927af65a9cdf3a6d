"""Groups of runs over seeds, their labels, and runs that do not compare."""

import pytest

from tests.report import fake_runs
from tff_xc import errors
from tff_xc.report import groups as groups_lib
from tff_xc.report import run_files


def test_groups_are_everything_but_the_seed(runs):
  groups = groups_lib.group_runs(runs[::-1])
  assert [group.label for group in groups] == [
    'centralized',
    'fullsoftmax',
    'posonly',
    'fedss negatives=80 correction=none',
    'fedss negatives=80 correction=negatives',
  ]
  assert [run.seed for run in groups[-1].runs] == [0, 1, 2]


def test_label_names_only_what_distinguishes(tmp_path):
  def label_of(*runs):
    return [
      group.label
      for group in groups_lib.group_runs(
        [
          run_files.read_run(fake_runs.write_run(tmp_path / name, **keys))
          for name, keys in runs
        ]
      )
    ]

  assert label_of(('a', {'negatives': 80})) == ['fedss']
  assert label_of(
    ('b', {'negatives': 5}), ('c', {'negatives': 80, 'rounds': 40})
  ) == ['fedss rounds=20 negatives=5', 'fedss rounds=40 negatives=80']
  assert label_of(
    ('d', {'negatives': 80}), ('e', {'algorithm': 'fullsoftmax'})
  ) == ['fedss negatives=80', 'fullsoftmax']
  # A setting that both runs have is named if its values differ.
  assert label_of(
    ('f', {'algorithm': 'posonly', 'client_learning_rate': 0.01}),
    ('g', {'algorithm': 'fullsoftmax'}),
  ) == [
    'posonly client_learning_rate=0.01',
    'fullsoftmax client_learning_rate=0.1',
  ]
  # An option that is off in all runs is not named.
  assert label_of(
    ('j', {'row_renormalise': False}), ('k', {'algorithm': 'fullsoftmax'})
  ) == ['fedss', 'fullsoftmax']
  # A configuration without the key differs from one with any value of it.
  assert label_of(('h', {'row_renormalise': True}), ('i', {})) == [
    'fedss row_renormalise=true',
    'fedss',
  ]


def test_runs_that_do_not_compare_are_refused(tmp_path, runs):
  other = run_files.read_run(
    fake_runs.write_run(tmp_path / 'g', settings={'task': 'glyphs'})
  )
  with pytest.raises(
    errors.InputError, match=r'f0 is .* omniglot and .*g of task glyphs'
  ):
    groups_lib.group_runs([runs[0], other])
  unfinished = run_files.read_run(
    fake_runs.write_run(tmp_path / 'u', finished=False)
  )
  with pytest.raises(
    errors.InputError, match=r'u has not finished.*launch.train'
  ):
    groups_lib.group_runs([runs[0], unfinished])
  twice = run_files.read_run(
    fake_runs.write_run(
      tmp_path / 'again', negatives=80, correction='negatives'
    )
  )
  with pytest.raises(errors.InputError, match=r'same configuration and seed 0'):
    groups_lib.group_runs([*runs, twice])


def test_a_run_that_was_extended_has_not_finished(runs):
  runs[0].config['rounds'] = 30  # summary.json is of 20 rounds.
  with pytest.raises(
    errors.InputError, match='f0 has not finished its 30 rounds'
  ):
    groups_lib.group_runs(runs)


def test_settings_leave_out_what_does_not_decide_the_numbers(tmp_path):
  paths = [
    fake_runs.write_run(
      tmp_path / str(seed),
      seed=seed,
      settings={
        'checkpoint_every': seed + 1,
        'data_dir': str(seed),
        'client_threads': seed,
      },
    )
    for seed in range(2)
  ]
  runs = [run_files.read_run(path) for path in paths]
  assert len(groups_lib.group_runs(runs)) == 1
  assert groups_lib.settings_of(runs[0]) == {
    'rounds': 20,
    'clients_per_round': 32,
    'embedding_dim': 64,
    'client_learning_rate': 0.1,
  }


def test_runs_on_other_data_are_another_configuration(tmp_path):
  def group(*runs):
    found = []
    for name, algorithm, seed, data, options in runs:
      settings = {'options': options} | ({'data': data} if data else {})
      path = tmp_path / name
      if not path.exists():
        fake_runs.write_run(path, algorithm, seed, settings=settings)
      found.append(run_files.read_run(path))
    return [(g.label, len(g.runs)) for g in groups_lib.group_runs(found)]

  a = {'examples': 40, 'labels': 'aa', 'train': 'bb'}
  first = ('a', 'fedss', 0, a, {})
  # More seeds on the same data, and on data with other labels.
  other = ('c', 'fedss', 2, a | {'labels': 'cc'}, {})
  assert group(first, ('b', 'fedss', 1, a, {}), other) == [
    ('fedss data.labels=aa', 2),
    ('fedss data.labels=cc', 1),
  ]
  # The message names the first difference, also between algorithms.
  b = a | {'examples': 60, 'labels': 'dd'}
  assert group(first, ('d', 'posonly', 0, b, {})) == [
    ('fedss data.examples=40', 1),
    ('posonly data.examples=60', 1),
  ]
  # Other options imply other data; one message is enough.
  assert group(first, ('e', 'fedss', 1, b, {'num_classes': 9})) == [
    ('fedss', 1),
    ('fedss num_classes=9', 1),
  ]
  # A run of a version that did not record the data.
  old = ('f', 'fedss', 1, None, {})
  assert group(first, old) == [('fedss data.examples=40', 1), ('fedss', 1)]
  assert group(old, ('g', 'posonly', 0, b, {})) == [
    ('fedss', 1),
    ('posonly', 1),
  ]


def test_a_run_that_waited_for_a_better_round_has_finished(runs):
  runs[0].config.update(rounds=30, stop_after=3)
  runs[0].summary['stopped_after'] = 3
  assert groups_lib.group_runs(runs[:1])
  runs[0].config['stop_after'] = 5  # It goes on to wait.
  with pytest.raises(errors.InputError, match='has not finished'):
    groups_lib.group_runs(runs[:1])
