"""Methods of runs and their labels, and tables over seeds in three formats."""

import csv
import dataclasses
import io

import numpy as np
import pandas as pd
import pytest

from tests.report import fake_runs
from tff_xc import errors
from tff_xc.measure import catalog, targets
from tff_xc.report import run_files, tables

FEDSS = 'fedss negatives=80 correction=negatives'


def read(tmp_path, *runs):
  """Returns runs. Each argument is the name of a new directory and arguments of `write_run`."""
  return [run_files.read_run(fake_runs.write_run(tmp_path / name, **keys)) for name, keys in runs]


def labels(runs):
  return list(dict.fromkeys(tables.collect(runs)['label']))


def build(runs, *args, **kwargs):
  """Returns the table of runs, by label."""
  frame = tables.collect(runs)
  return tables.build(frame, *args, **kwargs).set_index('algorithm', drop=False)


def rows_of(table):
  return list(csv.DictReader(io.StringIO(tables.to_csv(table))))


def printed(table, label, name):
  return tables.shown(tables.column(name), table.loc[label])


def test_methods_are_everything_but_the_seed(runs):
  frame = tables.collect(runs[::-1])
  assert labels(runs[::-1]) == [
    'centralized',
    'fullsoftmax',
    'posonly',
    'fedss negatives=80 correction=none',
    FEDSS,
  ]
  assert frame[frame['label'] == FEDSS]['seed'].tolist() == [0, 1, 2]


@pytest.mark.parametrize(
  ('a', 'b', 'expected'),
  [
    (
      {'negatives': 5},
      {'negatives': 80, 'rounds': 40},
      'fedss rounds=20 negatives=5, fedss rounds=40 negatives=80',
    ),
    ({'negatives': 80}, {'algorithm': 'fullsoftmax'}, 'fedss negatives=80, fullsoftmax'),
    (  # A setting that both runs have is named if its values differ.
      {'algorithm': 'posonly', 'server_momentum': 0.5},
      {'algorithm': 'fullsoftmax', 'server_momentum': 0.9},
      'posonly server_momentum=0.5, fullsoftmax server_momentum=0.9',
    ),
    # If a configuration lacks a key, it differs from a configuration with any value of it.
    (
      {'row_renormalize': False},
      {'algorithm': 'fullsoftmax'},
      'fedss row_renormalize=false, fullsoftmax',
    ),
    ({'row_renormalize': True}, {}, 'fedss row_renormalize=true, fedss'),
  ],
)
def test_a_label_names_only_what_distinguishes(tmp_path, a, b, expected):
  runs = read(tmp_path, ('a', a), ('b', b))
  assert ', '.join(labels(runs)) == expected
  assert labels(runs[:1]) == [expected.split()[0].rstrip(',')]


def test_runs_that_do_not_compare_are_refused(tmp_path, runs):
  [other, unfinished, twice] = read(
    tmp_path,
    ('g', {'settings': {'task': 'glyphs'}}),
    ('u', {'finished': False}),
    ('again', {'negatives': 80, 'correction': 'negatives'}),
  )
  for more, message in (
    (other, 'omniglot and .*g of task glyphs'),
    (unfinished, 'u has not finished'),
    (twice, 'same configuration and seed 0'),
  ):
    with pytest.raises(errors.InputError, match=message):
      tables.collect([*runs, more])
  runs[0].config['rounds'] = 30  # summary.json has 20 rounds.
  with pytest.raises(errors.InputError, match='f0 has not finished its 30'):
    tables.collect(runs)
  # A run that stopped early has finished, unless its patience is increased.
  runs[0].summary['stopped_after'] = 3
  runs[0].config['early_stopping_patience'] = 3
  assert len(tables.collect(runs[:1])) == 1
  runs[0].config['early_stopping_patience'] = 5
  with pytest.raises(errors.InputError, match='has not finished'):
    tables.collect(runs[:1])


A = {'examples': 40, 'labels': 'aa', 'train': 'bb'}
B = A | {'examples': 60, 'labels': 'dd'}


@pytest.mark.parametrize(
  ('others', 'expected'),
  [
    (  # More seeds with the same data, and with data that have other labels.
      [('fedss', 1, A, {}), ('fedss', 2, A | {'labels': 'cc'}, {})],
      {'fedss data.labels=aa': 2, 'fedss data.labels=cc': 1},
    ),
    (  # The label names the first difference, also between algorithms.
      [('posonly', 0, B, {})],
      {'fedss data.examples=40': 1, 'posonly data.examples=60': 1},
    ),
    (  # Other options give other data. The label names only one difference.
      [('fedss', 1, B, {'num_classes': 9})],
      {'fedss': 1, 'fedss num_classes=9': 1},
    ),
    # The run's version did not record the data.
    ([('fedss', 1, {}, {})], {'fedss data.examples=40': 1, 'fedss': 1}),
    ([('posonly', 0, {}, {})], {'fedss': 1, 'posonly': 1}),
  ],
)
def test_runs_on_other_data_are_another_method(tmp_path, others, expected):
  runs = read(
    tmp_path,
    *(
      (f'{i}', {'algorithm': name, 'seed': seed, 'settings': settings})
      for i, (name, seed, data, options) in enumerate([('fedss', 0, A, {}), *others])
      for settings in [{'data': data, 'options': options}]
    ),
  )
  frame = tables.collect(runs)
  assert frame['label'].value_counts(sort=False).to_dict() == expected


def test_means_and_sample_std(runs):
  del runs[1].summary['final']['map@r']
  table = build(runs)
  row = table.loc[FEDSS]
  assert row['seeds'] == '0 1 2'
  assert row['top1_mean'] == pytest.approx(np.mean(fake_runs.TOP1))
  assert row['top1_std'] == pytest.approx(np.std(fake_runs.TOP1, ddof=1))
  assert row['map@10_mean'] == pytest.approx(np.mean(fake_runs.TOP1) / 3)
  assert row['seconds_per_round_mean'] == pytest.approx(0.6)
  assert row['bytes_down_mean'] == 100_000 + 256 * 109
  assert row['bytes_down_std'] == 0
  # Some scores are missing in one seed, others in all seeds.
  assert np.isnan(row[['map@r_mean', 'train_top1_mean']].astype(float)).all()
  assert table.loc['posonly', 'top1_mean'] == 0.09
  assert np.isnan(table.loc['posonly', 'top1_std'])
  runs[0].metrics['map@10'] = np.nan
  row = build([run_files.first_rounds(runs[0], 10)]).iloc[0]
  assert np.isnan(row['map@10_mean'])
  assert row['top1_mean'] < 0.6


def test_sorted_by_the_metric_chosen_and_unmeasured_last(runs, monkeypatch):
  runs[5].summary['final']['map@10'] = None

  def names(table):
    return [label.split()[0] for label in table['algorithm']]

  order = ['centralized', 'fullsoftmax', 'fedss', 'fedss', 'posonly']
  assert names(build(runs)) == order
  assert names(build(runs, 'map@10'))[-1] == 'fullsoftmax'
  with pytest.raises(errors.InputError, match=r'train_top1.*have top1, map'):
    build(runs, 'train_top1')
  with monkeypatch.context() as patch:
    lower = catalog.SCORES['top1']._replace(better='lower')
    patch.setitem(catalog.SCORES, 'top1', lower)
    assert names(build(runs)) == order[::-1]
  for run in runs:
    run.summary['final']['top1'] = None
  assert names(build(runs))[-1] == 'fullsoftmax'
  runs[0].summary['final'] = dict.fromkeys(runs[0].summary['final'])
  text = tables.to_text(build(runs[:1]))  # The runs have no scores.
  assert 'fedss' in text
  assert 'nan' not in text


def test_text_is_aligned_and_markdown_has_its_cells(runs):
  table = build(runs)
  lines = tables.to_text(table).splitlines()
  assert len({len(line) for line in lines}) == 1
  assert 'train top-1' not in lines[0]  # No run has this score.
  of = {line.split()[0]: line for line in lines}
  [fedss] = [line for line in lines if 'correction=negatives' in line]
  assert '50.0 ± 3.0' in fedss and '128 kB' in fedss
  assert '±' not in of['posonly'] and '97.0' in of['posonly']  # 1 - 29/964.
  assert of['centralized'].count('–') == 4
  marked = tables.to_markdown(table).splitlines()
  assert marked[1].startswith('| --- | ---: |')
  for line, other in zip(marked[2:], lines[2:], strict=True):
    cells = [cell.strip() for cell in line.strip('|').split('|')]
    assert ' '.join(other.split()) == ' '.join(cells)


@pytest.mark.parametrize('width', [60, 100, 5000])
def test_text_fits_a_width_and_says_what_it_leaves_out(runs, width):
  for run in runs:  # All scores of a multi-label task.
    for i, name in enumerate(catalog.SCORES):
      run.summary['final'][name] = (i + 1) / 100
  table = build(runs)
  whole = tables.to_text(table)
  text = tables.to_text(table, width=width, elsewhere='compare.csv')
  assert max(map(len, text.splitlines())) <= width
  shown, _, rest = text.partition('more columns in compare.csv: ')

  def cut(line):
    return [c.strip() for c in line.split('  ') if c.strip()]

  kept, every = cut(shown.splitlines()[0]), cut(whole.splitlines()[0])
  left_out = [c.strip() for c in ' '.join(rest.split()).rstrip('.').split(',')]
  assert [c for c in every if c in kept] == kept
  assert sorted(kept + [c for c in left_out if c]) == sorted(every)
  assert 'top-1 %' in kept
  assert text.startswith(whole) == (width == 5000)
  # The metric by which rows are sorted is left out last.
  text = tables.to_text(table, width=width, metric='ndcg@5')
  assert 'nDCG@5 %' in text.splitlines()[0]


def test_csv_is_exact_and_is_read_again(runs, tmp_path):
  table = build(runs, target := 'top1:0.4')
  fedss = next(r for r in rows_of(table) if r['algorithm'] == FEDSS)
  assert float(fedss['top1_mean']) == table.loc[FEDSS, 'top1_mean']
  assert float(fedss['top1_std']) == table.loc[FEDSS, 'top1_std']
  assert float(fedss['bytes_up_mean']) == 100_004 + 264 * 109
  assert fedss['train_top1_mean'] == ''
  path = tmp_path / 'a.csv'
  path.write_text(tables.to_csv(table))
  again = tables.read_csv(path)
  pd.testing.assert_frame_equal(again, table.reset_index(drop=True), check_dtype=False)
  for form in (tables.to_text, tables.to_markdown, tables.to_csv):
    assert form(again) == form(table)
  assert target in tables.measured(again)
  for content in ('', 'seeds,a_mean\n0,x\n', 'a\n1\n'):
    path.write_text(content)
    with pytest.raises(errors.InputError, match=r'a.csv is no table'):
      tables.read_csv(path)


def test_rounds_to_a_target_over_seeds(runs):
  """The table names seeds that did not reach the target. There is no mean without them."""
  seeds, alone = runs[:3], runs[5]
  for run, rises in zip(seeds, (8, 12, 20), strict=True):
    run.metrics['top1'] = np.where(run.metrics['round'] >= rises, 0.5, 0.1)
    run.metrics['map@10'] = np.where(run.metrics['round'] >= 2 * rises, 0.5, 0)
  alone.metrics['top1'] = 0.6
  # One run stopped early, so later rounds are unknown.
  seeds[1].config['rounds'] = seeds[1].summary['rounds'] = 18
  seeds[0].config['target'] = 'top1:0.4'
  frame = tables.collect([*seeds, alone], ['a', 'a', 'a', 'b'])
  table = tables.build(frame).set_index('algorithm', drop=False)
  assert table.loc['a', 'rounds_to_top1:0.4_mean'] == pytest.approx(40 / 3)
  assert table.loc['a', 'rounds_to_top1:0.4_std'] == pytest.approx(np.std([8, 12, 20], ddof=1))
  assert printed(table, 'a', 'top1:0.4') == '13.3 ± 6.1'
  assert printed(table, 'b', 'top1:0.4') == '1'
  given = targets.parse('map@10:0.4,top1:0.55')
  table = tables.build(frame, targets=given).set_index('algorithm', drop=False)
  for label, expected in (('a', ['>18 in 2 of 3 seeds', '>18']), ('b', ['>20', '1'])):
    found = [printed(table, label, each.name) for each in given]
    assert found == expected
  assert 'rounds to MAP@10 40 %' in tables.to_text(table, 100).splitlines()[0]
  [cells] = [row for row in rows_of(table) if row['algorithm'] == 'a']
  assert cells['rounds_to_map@10:0.4_by_seed'] == '16 >18 >18'
  assert cells['rounds_to_map@10:0.4_mean'] == ''


def test_sorted_by_rounds_to_a_target_or_refused(runs):
  for run, rises in zip(runs[:6], (8, 12, 40, 40, 40, 18), strict=True):
    run.metrics['top1'] = np.where(run.metrics['round'] >= rises, 0.5, 0.1)
  found = [label.split()[0] for label in build(runs, 'top1:0.4').index]
  # The only seed of FullSoftmax reached the target. Not every seed of FedSS reached it.
  assert found.index('fullsoftmax') < found.index('fedss')
  with pytest.raises(errors.InputError, match=r'p@1:0.1.*have top1, .*top1:0.4'):
    build(runs, targets=targets.parse('top1:0.4,p@1:0.1'))
  # If runs have a target whose score is missing, its column is empty.
  runs[0].config['target'] = 'p@1:0.1'
  table = build(runs, 'top1:0.4')
  assert {row['rounds_to_p@1:0.1_by_seed'] for row in rows_of(table)} == {''}
  # If two methods missed the target, the one with fewer missing seeds comes first.
  for run in runs[:3]:
    run.metrics['top1'] = 0.1
  assert build(runs, 'top1:0.4').index[-1] == FEDSS


def test_a_score_at_a_budget_is_a_column(runs):
  some = targets.parse_budgets('rounds:10,rounds:999')
  table = build(runs, 'top1', budgets=some)
  at = [run.metrics.set_index('round')['top1'].loc[:10].dropna().iloc[-1] for run in runs[:3]]
  row = table.loc[FEDSS]
  assert row['top1@rounds:10_mean'] == pytest.approx(np.mean(at))
  assert row['top1@rounds:10_std'] == pytest.approx(np.std(at, ddof=1))
  text = tables.to_text(table)
  assert 'top-1 % at 10 rounds' in text
  # A budget that no run reached is also shown, because the caller asked for it.
  assert 'top-1 % at 999 rounds' in text
  assert printed(table, FEDSS, 'top1@rounds:999') == '–'
  # If rows are sorted by a target, the score of this target is shown.
  assert 'map@10@rounds:10_mean' in build(runs, 'map@10:0.1', budgets=some)


def test_epsilon_is_that_at_the_end(runs):
  private = runs[0]
  assert 'epsilon_mean' not in build(runs).dropna(axis=1, how='all')
  rounds = private.metrics['round']
  epsilon = (rounds / 10).where(rounds % 10 == 0)
  epsilon.iloc[-1] = np.nan  # A round without an evaluation.
  told = dataclasses.replace(private, metrics=private.metrics.assign(epsilon=epsilon))
  assert printed(build([told]), 'fedss', 'epsilon') == f'{epsilon.max():.3g}'


def test_columns_of_a_round_and_of_the_best_round(runs):
  for run, (number, top1) in zip(runs[:2], [(10, 0.4), (20, 0.6)], strict=True):
    chosen = {'round': number, 'top1': top1, 'bytes_down': number * 2**20}
    run.summary['best_round'] = chosen
  names = ('top1@10', 'best.round', 'best.top1', 'best.bytes_down')
  columns = [tables.column(name) for name in names]
  table = build([*runs[:2], runs[5]], more=columns)
  at = [run.metrics.set_index('round')['top1'][10] for run in runs[:2]]
  mean = table.loc['fedss negatives=80 correction=negatives', 'top1@10_mean']
  assert mean == pytest.approx(np.mean(at))
  heading, *lines = tables.cells(table, columns)
  assert heading[2:] == [
    'top-1 % after 10 rounds',
    'best round',
    'top-1 %, best round',
    'MiB sent down until then',
  ]
  of = {line[0]: line[3:] for line in lines}
  assert of['fullsoftmax'] == ['–', '–', '–']  # This run selected no best round.
  assert of[FEDSS] == ['15 ± 7', '50.0 ± 14.1', '15 ± 7']
  assert tables.column('p@1@100').heading == 'P@1 % after 100 rounds'
  with pytest.raises(errors.InputError, match='no scores of round 9'):
    build(runs, more=[tables.column('top1@9')])
  first = [run_files.first_rounds(run, 10) for run in runs[:2]]
  read = tables.column('best.round').read
  assert [read(run) for run in first] == [10, None]  # The second run chose a later round.


def test_volatility_is_the_deviation_over_the_last_evaluations(runs):
  metrics = pd.DataFrame({'round': range(1, 25), 'top1': [0.5] * 24})
  metrics.loc[20:, 'top1'] = [0.4, np.nan, 0.6, np.nan]
  # 22 rounds were evaluated. The last tenth are 3 rounds, with 50, 40 and 60 %.
  steady = metrics.assign(top1=0.5, **{'map@10': metrics['top1']})
  run, other = (
    dataclasses.replace(of, metrics=each) for of, each in ((runs[0], metrics), (runs[5], steady))
  )
  table = build([run, other], more=[tables.column('volatility_map@10')])
  assert sorted(table['volatility_mean'].tolist()) == pytest.approx([0, 0.1])
  of_retrieval = table['volatility_map@10_mean'].dropna().tolist()
  assert of_retrieval == pytest.approx([0.1])
  assert tables.column('volatility').better == 'lower'
  few = dataclasses.replace(run, metrics=metrics[:10])
  assert build([few])['volatility_mean'].isna().all()


@pytest.mark.parametrize(
  'name', ['top9', 'best.top9', 'relative_top1:x', 'top9@3', '\x1b', 'top1@', 'volatility_top9']
)
def test_an_unknown_column_is_refused(name):
  with pytest.raises(errors.InputError, match='there is no column'):
    tables.column(name)


def test_the_best_of_each_column_is_marked_and_all_that_look_like_it(runs):
  table = build(runs).iloc[:3].copy()
  table['top1_mean'], table['top1_std'] = [0.50001, 0.50004, 0.3], [0.01, 0.02, 0.01]
  text = tables.to_text(table, mark=True)
  assert '50.0 ± 1.0*' in text and '50.0 ± 2.0*' in text and '30.0 ± 1.0*' not in text
  least = table.loc[table['bytes_down_mean'].idxmin()]
  shown = tables.shown(tables.column('bytes_down'), least)
  assert f'{shown}*' in text
  assert '**50.0 ± 1.0**' in tables.to_markdown(table, mark=True)
  assert '*' not in tables.to_text(table) + tables.to_markdown(table)
  table['top1_mean'] = 0.5  # No score is better than the others.
  assert '50.0 ± 1.0*' not in tables.to_text(table, mark=True)
