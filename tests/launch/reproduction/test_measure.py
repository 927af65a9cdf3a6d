"""What finished runs say of a published table."""

import dataclasses
import json
import math

import pytest

from launch.reproduction import measure
from launch.reproduction import results
from launch.reproduction import rows as rows_lib
from tasks.papers import names as names_lib
from tasks.papers import table as table_lib
from tests.launch.reproduction import small_table
from tests.report import fake_runs
from tff_xc import errors
from tff_xc.report import curves
from tff_xc.report import run_files

TABLE = small_table.TABLE
BEST = {'by': 'top1', 'round': 4, 'top1': 0.5, 'bytes_down': 10.0}


def planned(output, seeds=(0,), rows=TABLE.rows, given=()):
  return rows_lib.plan_runs(rows, dict(given), seeds, output)


def lines(output, scores, seeds=(0,), found=TABLE, notes=()):
  """Returns the lines of rows with these top-1 of each seed; None: no run."""
  runs = planned(output, seeds, found.rows)
  for number, (group, of_row) in enumerate(zip(runs, scores, strict=True)):
    for run, score in zip(group, of_row, strict=True):
      if score is not None:
        small_table.finish(run, score)
        config = {**run.config, 'git_revision': f'v{max(number - run.seed, 0)}'}
        (run.folder / 'config.json').write_text(json.dumps(config))
  about = {'scale': 'small', 'command': 'c', 'note': ''}
  groups = measure.finished(found, runs)
  made = measure.lines(found, found.rows, groups, about, dict(notes))
  return results.frame(made)


def test_a_row_has_a_line_for_each_result_cost_and_claim(tmp_path):
  claim = table_lib.Claim('Ahead', 'map@r', 'fedss', 'posonly')
  small = TABLE.small._replace(claims=(claim,))
  found = lines(
    tmp_path,
    [(0.3, 0.4), (0.5, 0.5), (0.4, 0.4)],
    (0, 1),
    dataclasses.replace(TABLE, small=small),
  )
  assert [*found['metric']] == 3 * ['top1', 'map@10', 'map@r', 'seconds']
  first = dict(found.iloc[0])
  assert float(first.pop('mean')) == pytest.approx(35)
  assert float(first.pop('std')) == pytest.approx(50**0.5)
  assert first == {
    **{'table': 'fig1', 'scale': 'small', 'row': 'fedss negatives=5'},
    **{'task': 'glyphs', 'algorithm': 'fedss', 'metric': 'top1'},
    **{'changes': 'rounds=20;negatives=5', 'published': '60.0'},
    **{'seeds': '2', 'rounds': '20', 'revision': 'v0', 'by_seed': '0:30 1:40'},
    **{'processor': '', 'command': 'c', 'note': ''},
  }
  assert found['published'][9] == ''
  assert [*dict.fromkeys(found['revision'])] == ['v0', 'v1 v0', 'v2 v1']
  claimed = found[found['metric'] == 'map@r']
  assert [*claimed['published']] == 3 * ['']
  assert [*map(float, claimed['mean'])] == [17.5, 25, 20]


def test_a_claim_is_measured_of_the_algorithms_that_it_names(tmp_path):
  claim = table_lib.Claim('Fast', 'relative_top1:0.9', 'posonly', 'fedss')
  small = TABLE.small._replace(claims=(claim,))
  found = dataclasses.replace(TABLE, small=small, relative_to='posonly')
  *_, other = TABLE.rows
  tuned = other._replace(
    algorithm='centralized', changes={'rounds': 20, 'client_learning_rate': 1.0}
  )
  other = other._replace(changes={'rounds': 20, 'client_learning_rate': 0.5})
  rows = (TABLE.rows[0]._replace(changes=other.changes), other, tuned)
  found = dataclasses.replace(found, rows=rows)
  made = lines(tmp_path, [(0.5,), (0.5,), (0.5,)], found=found)
  claimed = made[made['metric'] == claim.metric]
  assert [*claimed['row']] == ['fedss', 'posonly']
  assert all(claimed['mean'])


def test_of_two_panels_each_row_has_its_own_metrics(tmp_path):
  claims = [
    table_lib.Claim('Ahead', name, 'fedss', 'posonly')
    for name in ('top1:0.3', 'map@10:0.3')
  ]
  first, *_, other = TABLE.rows
  rows = (first._replace(published={'top1': '60.0'}),)
  rows += (other._replace(published={'map@10': '20.0'}),)
  small = TABLE.small._replace(claims=tuple(claims))
  both = dataclasses.replace(TABLE, rows=rows, small=small)
  found = lines(tmp_path, [(0.3,), (0.5,)], found=both)
  of = {label: [*lines] for label, lines in found.groupby('row')['metric']}
  assert of == {
    'fedss': ['top1', 'top1:0.3', 'seconds'],
    'posonly': ['map@10', 'map@10:0.3', 'seconds'],
  }


def test_a_claim_of_a_printed_target_is_measured_where_it_is_printed(tmp_path):
  claim = table_lib.Claim('Faster', 'top1:0.3', 'fedss', 'posonly')
  first, *_, other = TABLE.rows
  rows = first._replace(published={'top1:0.3': '9'}), other
  form = TABLE.small._replace(claims=(claim,))
  found = dataclasses.replace(TABLE, rows=rows, small=form)
  found = lines(tmp_path, [(0.3,), (0.5,)], found=found)
  assert [*found[found['metric'] == 'top1:0.3']['row']] == ['fedss']


def test_the_best_seed_stands_beside_the_mean_where_the_paper_prints_it(
  tmp_path,
):
  of_best = dataclasses.replace(TABLE, best_seed=('posonly',))
  scores = [(0.3, 0.4), (0.5, 0.5), (0.4, 0.6)]
  found = lines(tmp_path, scores, (0, 1), of_best)
  best = found[found['metric'].str.startswith('best_seed_')]
  assert [*best['row']] == 2 * ['posonly']
  assert [*best['metric']] == ['best_seed_top1', 'best_seed_map@10']
  assert float(best['mean'].iloc[0]) == pytest.approx(60)
  assert not any(best['published']) and not any(best['std'])
  one = lines(tmp_path / 'one', [s[:1] for s in scores], (0,), of_best)
  assert [*one['metric']] == 3 * ['top1', 'map@10', 'seconds']


def test_a_mean_over_some_of_the_seeds_is_no_result(tmp_path):
  scores = [(0.3, None), (0.5, 0.5), (None, None)]
  found = lines(tmp_path, scores, (0, 1), notes={2: 'no disk'})
  of = found[found['metric'] == 'top1'].set_index('row')
  assert [*zip(of['mean'], of['seeds'], of['note'], strict=True)] == [
    ('', '', ''),
    ('50.0', '2', ''),
    ('', '', 'no disk'),
  ]


def write_scores(folder, *scores, seed=0):
  """Returns a finished run with a score after rounds 2, 4, 6 and so on."""
  path = folder / str(seed)
  fake_runs.write_run(path, seed=seed, top1=scores[-1], rounds=2 * len(scores))
  text = 'round,local_batches,top1,seconds\n' + ''.join(
    f'{2 * n},8,{score},1.0\n' for n, score in enumerate(scores, 1)
  )
  (path / 'metrics.csv').write_text(text)
  run = run_files.read_run(path)
  return dataclasses.replace(run, summary={**run.summary, 'best_round': {}})


def test_results_at_budgets_targets_and_relative_ones_are_measured(tmp_path):
  whole = [write_scores(tmp_path / 'whole', 0.5, 0.8)]
  part = [write_scores(tmp_path / 'part', 0.1, 0.3, 0.4)]
  mean = lambda name, *more: measure.measured(part, name, *more).get('mean')
  for name, value in {
    **{'top1': 40, 'top1@rounds:5': 30, 'top1@batches:16': 30},
    **{'top1@rounds:7': None},  # It ended before.
    **{'top1:0.3': 4, 'top1:0.7': '>6', 'seconds': 0.5},
    **{'best_round': None, 'support_vectors': None, 'relative_top1:0.1': None},
  }.items():
    found = mean(name)
    assert found == (pytest.approx(value) if isinstance(value, int) else value)
  assert mean('relative_top1:0.1', whole) == 2
  assert mean('relative_top1:0.5', whole) == 6
  assert mean('relative_top1:0.9', whole) == '>6'
  # Seeds that missed a target make it a bound.
  [reached], short = whole, write_scores(tmp_path, 0.5)  # It stopped early.
  both = measure.measured([reached, reached], 'top1:0.7')
  assert both == {'mean': 4, 'std': 0, 'by_seed': '0:4 0:4'}
  some = measure.measured([reached, short], 'top1:0.7')
  deviation = {'std': pytest.approx(2**0.5)}
  assert some == {'mean': '>3', **deviation, 'by_seed': '0:4 0:>2'}
  none = measure.measured([short, reached], 'top1:0.9')
  # How they differ is not known.
  assert none == {'mean': '>3', 'by_seed': '0:>2 0:>4'}
  # Each seed's target is its own run's score, which it reaches itself.
  seeds = [write_scores(tmp_path / f'own{n}', 0.1, n, seed=n) for n in (0, 1)]
  own = measure.measured(seeds, 'relative_top1:1', seeds)
  assert own == {'mean': 3, **deviation, 'by_seed': '0:2 1:4'}
  # A number that the last round lacks was not measured.
  name = 'support_vectors_class_1'
  reached.metrics[name] = [8.0, 7.0]
  assert measure.measured([reached], name) == {'mean': 7, 'by_seed': '0:7'}
  reached.metrics[name] = [8.0, math.nan]  # The class was not drawn.
  assert measure.measured([reached], name) == {}


def test_volatility_is_of_the_last_tenth_of_the_evaluations(tmp_path):
  scores = [0.1, 0.9] * 9 + [0.5, 0.7, 0.8]
  runs = [write_scores(tmp_path, *scores)]
  mean = lambda name: measure.measured(runs, name).get('mean')
  # 3 of 21, and 2 of the first 20.
  assert mean('volatility_top1') == pytest.approx(100 * 0.1528, abs=0.01)
  at = 'volatility_top1@rounds:40'
  assert mean(at) == pytest.approx(100 * 0.1414, abs=0.01)
  assert mean('volatility_top1@rounds:20') is None  # 1 of 10.
  assert mean('volatility_map@10') is None
  assert names_lib.heading(at) == 'volatility of top-1 at 40 rounds'
  assert names_lib.parse(at).is_cost
  assert names_lib.is_known(at) and not names_lib.is_known('volatility_x')


def change(path, **values):
  """Changes a summary; None removes a key."""
  summary = json.loads(path.read_text()) | values
  kept = {name: value for name, value in summary.items() if value is not None}
  path.write_text(json.dumps(kept))


def test_scores_are_those_of_the_round_that_the_command_chooses(tmp_path):
  """Another command may have trained the runs, with another --best_by."""
  rows = TABLE.rows[:1]
  [[run]] = planned(tmp_path, rows=rows)
  small_table.finish(run, 0.5)
  metrics = run_files.read_metrics(run.folder / 'metrics.csv')
  metrics.loc[metrics['round'] == 10, 'top1'] = 0.9
  metrics.to_csv(run.folder / 'metrics.csv', index=False)
  best = {'by': 'mcc', 'round': 20, 'top1': 0.4, 'bytes_down': 10.0}
  change(run.folder / 'summary.json', best_round=best)

  def values(*names, found=TABLE, **given):
    runs = planned(tmp_path, rows=rows, given=given)
    [group] = measure.finished(found, runs)
    return [measure.measured(group, name).get('mean') for name in names]

  names = 'top1', 'best_round'
  assert values(*names) == [50.0, None]
  assert values(*names, best_by='top1') == [90.0, 10]
  assert values(*names, 'bytes_down', best_by='mcc') == [40.0, 20, 10]
  at_end = dataclasses.replace(TABLE, at_rounds=20)
  last = pytest.approx(100 * metrics['top1'].iloc[-1])
  assert values('top1', found=at_end, best_by='top1') == [last]


@pytest.mark.parametrize(
  ('name', 'values'),
  [
    ('round', {'best_round': {**BEST, 'round': 'x'}}),
    ('best_round', {'best_round': [4]}),
    ('top1', {'best_round': {**BEST, 'top1': math.nan}}),
    ('mcc', {'final': {'top1': 0.5, 'mcc': math.inf}}),
  ],
)
def test_what_a_summary_lacks_is_named(name, values, tmp_path):
  runs = planned(tmp_path, given={'best_by': 'top1'})
  for [run] in runs:
    small_table.finish(run, 0.5)
  path = runs[0][0].folder / 'summary.json'
  change(path, best_round=BEST)
  assert all(measure.finished(TABLE, runs))
  change(path, **values)
  with pytest.raises(errors.DamageError, match=f'"{name}"') as told:
    measure.finished(TABLE, runs)
  assert str(told.value).startswith(f'{path} is damaged (')


@pytest.mark.parametrize('kept', ['round,lo', 'round,loss,seconds\n', 'half'])
def test_metrics_that_were_cut_are_named(kept, tmp_path):
  [[run], *_] = runs = planned(tmp_path)
  small_table.finish(run, 0.5)
  path = run.folder / 'metrics.csv'
  whole = path.read_text().splitlines(keepends=True)
  path.write_text(''.join(whole[:9]) if kept == 'half' else kept)
  with pytest.raises(errors.DamageError, match=f'{path} is damaged .*up to 20'):
    measure.finished(TABLE, runs)


def test_a_picture_for_each_task(tmp_path, monkeypatch):
  whole = small_table.row('centralized', '90.0')
  rows = (*TABLE.rows, TABLE.rows[0]._replace(task='glyphs-femnist'), whole)
  found = dataclasses.replace(TABLE, rows=rows, is_relative=True)
  runs = planned(tmp_path, rows=rows)
  for [run] in runs:
    small_table.finish(run, 0.5)
  groups = measure.finished(found, runs)
  drawn, figure = [], curves.compare_figure
  monkeypatch.setattr(
    curves,
    'compare_figure',
    lambda *a, **named: drawn.append(a) or figure(*a, **named),
  )
  measure.draw(found, rows, groups, tmp_path / 'a')
  assert [len(frame) for frame, *_ in drawn] == [4, 1]
  # Relative to the centralised runs, of the tasks that have some.
  [[whole_run], other] = [
    of if of is None else [*of['run']] for *_, of in drawn
  ]
  assert (whole_run.path, other) == (runs[-1][0].folder, None)
  measure.draw(found, rows, [*groups[:3], None, None], tmp_path / 'b')
  assert drawn[2][-1] is None
  names = lambda folder: sorted(path.name for path in folder.iterdir())
  assert names(tmp_path / 'a') == [
    *('result_glyphs-femnist.png', 'result_glyphs.png')
  ]
  assert names(tmp_path / 'b') == ['result.png']
  picture = tmp_path / 'b' / 'result.png'
  assert picture.read_bytes().startswith(b'\x89PNG')


def test_the_best_score_at_each_effective_rate_is_drawn(tmp_path):
  row = lambda algorithm, skew, rate, **more: table_lib.Row(
    'glyphs',
    algorithm,
    {'top1': None},
    {
      'rounds': 20,
      'classes_per_client': skew,
      table_lib.EFFECTIVE[0]: rate,
      **more,
    },
  )
  rows = (
    row('fedavg', 5, 0.1),
    row('fedavg', 5, 0.01),
    row('fedavgm', 5, 0.01, server_momentum=0.9),
    row('fedavg', 1, 0.01),
  )
  runs = planned(tmp_path, rows=rows)
  for [run], score in zip(runs, (0.5, 0.25, 0.75, 0.125), strict=True):
    small_table.finish(run, score)
  found = dataclasses.replace(
    TABLE,
    rows=rows,
    small=None,
    curves=('top1',),
    over=table_lib.EFFECTIVE_RATE,
  )
  groups = measure.finished(found, runs)
  best = measure.by_effective_rate([*zip(rows, groups, strict=True)], 'top1')
  assert best == {
    'classes_per_client=5': [(0.01, 25.0), (0.1, 75.0)],
    'classes_per_client=1': [(0.01, 12.5)],
  }
  measure.draw(found, rows, groups, tmp_path / 'a')
  assert (tmp_path / 'a' / 'result.png').exists()
  # Of a grid only the curves of the best.
  there = [*zip(rows, 'abcd', groups, strict=True)]
  kept = measure.best_of_grids(there, table_lib.EFFECTIVE)
  assert [label for _, label, _ in kept] == ['a', 'c', 'd']
