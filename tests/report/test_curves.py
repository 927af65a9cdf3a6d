"""Pictures: their data, and that they are drawn at all."""

import dataclasses

import matplotlib.figure
import matplotlib.image
import numpy as np
import pytest
from matplotlib.backends import backend_agg

from tests.report import fake_runs
from tff_xc.report import compare_curves
from tff_xc.report import curves
from tff_xc.report import final_points
from tff_xc.report import groups as groups_lib
from tff_xc.report import pictures
from tff_xc.report import run_files
from tff_xc.report import tables


def read(path):
  return matplotlib.image.imread(path)


def plot_compare(groups, path, *more, **named):
  pictures.save(compare_curves.compare_figure(groups, *more, **named), path)


def test_band_is_mean_and_sample_std_where_every_seed_measured(runs):
  group = next(g for g in groups_lib.group_runs(runs) if len(g.runs) == 3)
  group.runs[1].metrics.loc[3, 'top1'] = np.nan  # Round 4.
  band = compare_curves._band(group, 'top1')
  assert band['round'].tolist() == [2, *range(6, 21, 2)]
  values = [run.metrics.set_index('round')['top1'] for run in group.runs]
  for _, row in band.iterrows():
    at = [series[row['round']] for series in values]
    assert row['mean'] == pytest.approx(np.mean(at))
    assert row['std'] == pytest.approx(np.std(at, ddof=1))


@pytest.mark.parametrize('length', [10, 34, 60])
def test_labels_are_inside_the_picture(length, runs):
  groups = groups_lib.group_runs(runs)
  long = [g for g in groups if len(g.runs) == 3]
  label = ('negonly negatives=20 ' * 3)[:length]
  several = [dataclasses.replace(g, label=label) for g in long * 4]
  figure = compare_curves.compare_figure(several, ['top1'])
  figure.canvas = backend_agg.FigureCanvasAgg(figure)
  figure.canvas.draw()
  [legend] = figure.legends
  where, whole = legend.get_window_extent(), figure.bbox
  assert whole.x0 <= where.x0 < where.x1 <= whole.x1
  assert len({text.get_window_extent().x0 for text in legend.get_texts()}) == (
    2 if length == 10 else 1
  )


def test_the_initial_model_is_the_first_point(tmp_path, recwarn):
  run = run_files.read_run(fake_runs.write_run(tmp_path / 'a', initial=True))
  [group] = groups_lib.group_runs([run])
  assert compare_curves._band(group, 'top1')['round'].tolist() == [
    *range(0, 21, 2)
  ]
  curves.plot_run(run, tmp_path / 'run.png')
  plot_compare([group], tmp_path / 'compare.png')
  assert not recwarn.list


def test_what_a_client_is_sent_is_rows_times_dimensions(runs):
  groups = groups_lib.group_runs(runs)
  [panel] = final_points.panels(groups)
  assert 'top-1' in panel.y_label
  assert '|S| · d' in panel.x_label
  by_label = dict(zip([g.label for g in groups], panel.points, strict=True))
  assert by_label['fullsoftmax'] == (964 * 64, 0.6, None)
  assert by_label['centralized'] is None  # Nothing is sent.
  x, mean, std = by_label['fedss negatives=80 correction=negatives']
  assert x == 109 * 64
  assert mean == pytest.approx(np.mean(fake_runs.TOP1))
  assert std == pytest.approx(np.std(fake_runs.TOP1, ddof=1))


def test_nothing_is_scattered_where_all_are_sent_the_same(runs):
  assert not final_points.panels(groups_lib.group_runs(runs[:4]))


def test_relative_scores_are_drawn_over_the_skew_of_clients(tmp_path):
  made = [
    fake_runs.write_run(
      tmp_path / f'{name}{emd}',
      name,
      top1=top1,
      emd=emd,
      settings={'options': {'concentration': emd}},
    )
    for name, top1, emd in (
      ('fedavg', 0.6, 0.281),
      ('fedavg', 0.3, 1.8),
      ('fedavgm', 0.5, 1.8),
    )
  ]
  whole = fake_runs.write_run(tmp_path / 'c', 'centralized', 0, 0.8, None)
  groups = groups_lib.group_runs([run_files.read_run(path) for path in made])
  [reference] = groups_lib.group_runs([run_files.read_run(whole)])
  [panel] = final_points.panels(groups, reference)
  xs, means, stds = zip(*panel.points, strict=True)
  assert (xs, set(stds)) == ((0.28, 1.8, 1.8), {None})
  assert means == pytest.approx((0.75, 0.375, 0.625))
  assert panel.lines == ('fedavg', 'fedavg', 'fedavgm')
  [other] = final_points.panels(groups, reference, 'map@r')
  assert 'MAP@R' in other.y_label
  assert other.points[0][1] == pytest.approx(0.75)
  [absolute] = final_points.panels(groups)
  assert absolute.points[0] == (0.28, 0.6, None)
  # A run that has no skew leaves a gap.
  other = fake_runs.write_run(tmp_path / 'other', 'fedprox')
  groups += groups_lib.group_runs([run_files.read_run(other)])
  plot_compare(groups, tmp_path / 'a.png', reference=reference)
  plot_compare(groups[:1], tmp_path / 'b.png')
  (_, a, _), (_, b, _) = (read(tmp_path / f'{n}.png').shape for n in 'ab')
  assert a > b  # A panel more.


def test_a_line_over_skew_joins_runs_of_equal_hyperparameters(tmp_path):
  made = [
    fake_runs.write_run(
      tmp_path / f'{rate}{emd}',
      'fedavg',
      emd=emd,
      settings={'options': {'concentration': 2 - emd}},
      client_learning_rate=rate,
    )
    for rate in (0.1, 0.01)
    for emd in (0.3, 1.8)
  ]
  groups = groups_lib.group_runs([run_files.read_run(path) for path in made])
  [panel] = final_points.panels(groups)
  assert panel.lines == (
    *['fedavg client_learning_rate=0.1'] * 2,
    *['fedavg client_learning_rate=0.01'] * 2,
  )
  ax = matplotlib.figure.Figure().subplots()
  final_points.draw(ax, panel)
  joined = [line for line in ax.lines if line.get_color() == '0.5']
  assert [line.get_xdata().tolist() for line in joined] == [[0.3, 1.8]] * 2
  assert len({line.get_linestyle() for line in joined}) == 2
  # In a legend: names at the lines' ends would leave the picture.
  assert [text.get_text() for text in ax.get_legend().texts] == [
    *dict.fromkeys(panel.lines)
  ]


def test_centralised_training_has_no_point_over_the_skew_of_clients(tmp_path):
  made = [
    fake_runs.write_run(
      tmp_path / str(emd),
      emd=emd,
      settings={'options': {'concentration': emd}},
    )
    for emd in (0.3, 1.8)
  ]
  made.append(
    fake_runs.write_run(tmp_path / 'c', 'centralized', rows=None, emd=1.0)
  )
  groups = groups_lib.group_runs([run_files.read_run(path) for path in made])
  [panel] = final_points.panels(groups)
  assert [bool(point) for point in panel.points] == [True, True, False]


def test_styles_differ_for_four_times_the_colours():
  styles = [s for s, _ in zip(pictures.styles(), range(28), strict=False)]
  assert len({(colour, line) for colour, line, _ in styles}) == 28
  assert len({(colour, marker) for colour, _, marker in styles}) == 28


def test_pictures_are_drawn_again_to_the_same_bytes(tmp_path, runs):
  groups = groups_lib.group_runs(runs)
  for name in ('a.png', 'b.png'):
    plot_compare(groups, tmp_path / name)
  assert (tmp_path / 'a.png').read_bytes() == (tmp_path / 'b.png').read_bytes()
  # Three panels side by side, and not a blank picture.
  height, width, _ = read(tmp_path / 'a.png').shape
  assert width > 2 * height
  assert read(tmp_path / 'a.png').std() > 0.01
  assert not list(tmp_path.glob('.*'))  # No temporary file is left.


def test_panels_without_data_are_left_out_or_say_so(tmp_path, runs, recwarn):
  run = runs[0]
  run.metrics.drop(columns=['top1', 'map@10', 'map@r', 'loss'], inplace=True)
  curves.plot_run(run, tmp_path / 'run.png')
  plot_compare(groups_lib.group_runs([run]), tmp_path / 'none.png')
  unfinished = run_files.read_run(
    fake_runs.write_run(tmp_path / 'u', finished=False)
  )
  curves.plot_run(unfinished, tmp_path / 'u.png')
  assert {p.name for p in tmp_path.glob('*.png')} == {
    'run.png',
    'none.png',
    'u.png',
  }
  assert not recwarn.list


def test_run_picture_follows_its_metrics(tmp_path, runs):
  curves.plot_run(runs[0], tmp_path / 'a.png')
  runs[0].metrics['loss'] *= np.linspace(1, 2, 20)
  curves.plot_run(runs[0], tmp_path / 'b.png')
  assert (read(tmp_path / 'a.png') != read(tmp_path / 'b.png')).any()


@pytest.mark.parametrize('count', [1, 6, 40])
def test_confusion_is_drawn_and_its_shape_checked(tmp_path, count):
  matrix = np.eye(count, count + 1, dtype=np.int64) * 3
  curves.plot_confusion(matrix, range(count), tmp_path / 'c.png')
  assert read(tmp_path / 'c.png').std() > 0.01
  with pytest.raises(ValueError, match='Expected a matrix of shape'):
    curves.plot_confusion(matrix[:, :-1], range(count), tmp_path / 'd.png')
  assert not (tmp_path / 'd.png').exists()


def test_label_set_metrics_and_distances_are_drawn(tmp_path, runs, recwarn):
  """Distances have their own panel, which makes the picture higher."""
  curves.plot_run(runs[0], tmp_path / 'without.png')
  for run in runs[:3]:
    for name in ('p@1', 'p@5', 'psp@1', 'ndcg@5', 'class_distance_min'):
      run.metrics[name] = run.metrics['top1'] / 2
    run.metrics.drop(columns='top1', inplace=True)
  curves.plot_run(runs[0], tmp_path / 'with.png')
  heights = [read(tmp_path / f'{n}.png').shape[0] for n in ('without', 'with')]
  assert heights[1] == pytest.approx(heights[0] * 4 / 3, abs=2)
  band = compare_curves._band(groups_lib.group_runs(runs[:3])[0], 'p@1')
  assert len(band) == 10
  plot_compare(groups_lib.group_runs(runs[:3]), tmp_path / 'c.png')
  assert not recwarn.list


def test_a_run_without_any_score_is_shown(tmp_path, recwarn):
  """The summary has null scores if every evaluation gave nan."""
  path = fake_runs.write_run(tmp_path / 'a')
  run = run_files.read_run(path)
  nothing = dict.fromkeys(run.summary['final'])
  run.summary.update(final=nothing, best=nothing)
  run.metrics[['top1', 'map@10', 'map@r']] = np.nan
  groups = groups_lib.group_runs([run])
  text = tables.to_text(tables.build_rows(groups))
  assert 'fedss' in text
  assert 'nan' not in text
  curves.plot_run(run, tmp_path / 'run.png')
  plot_compare(groups, tmp_path / 'compare.png')
  assert not recwarn.list


def test_a_score_that_was_nan_after_some_rounds_is_left_out(tmp_path):
  run = run_files.read_run(fake_runs.write_run(tmp_path / 'a'))
  run.metrics['map@10'] = np.nan
  earlier = run_files.first_rounds(run, 10)
  row = tables.build_rows(groups_lib.group_runs([earlier]))[0]
  assert row.values['map@10'] is None
  assert row.values['top1'].mean < 0.6


def test_scores_are_drawn_over_what_was_spent(runs, tmp_path):
  group = next(g for g in groups_lib.group_runs(runs) if len(g.runs) == 3)
  rounds = compare_curves._band(group, 'top1')
  assert rounds['x'].tolist() == rounds['round'].tolist()
  spent = compare_curves._band(group, 'top1', 'bytes')
  assert spent['mean'].tolist() == rounds['mean'].tolist()
  for place, number in enumerate(spent['round']):
    each = []
    for run in group.runs:
      until = run.metrics[run.metrics['round'] <= number]
      both = until['bytes_down_per_client'] + until['bytes_up_per_client']
      each.append((both * until['clients']).sum())
    assert spent['x'][place] == pytest.approx(np.mean(each))
  seconds = compare_curves._band(group, 'top1', 'seconds')
  assert (np.diff(seconds['x']) > 0).all()
  plot_compare(
    groups_lib.group_runs(runs), tmp_path / 'c.png', ['top1', 'mcc'], 'bytes'
  )
  assert read(tmp_path / 'c.png').size


def test_a_dollar_in_a_name_is_a_character(tmp_path):
  names = ['$$', 'a$b_{$', 'price $5 or $10', r'\$x']
  matrix = np.eye(4, 5, dtype=int)
  curves.plot_confusion(matrix, names, tmp_path / 'a.png', 'client $x_{$')
  assert (tmp_path / 'a.png').stat().st_size > 0


def test_labels_of_log_axes_are_still_formulas(tmp_path, monkeypatch):
  figure = matplotlib.figure.Figure(layout='constrained')
  ax = figure.subplots()
  ax.plot([1, 1000], [1, 2], label='$a_{$')
  ax.set_xscale('log')
  ax.legend()
  pictures.save(figure, tmp_path / 'a.png')
  assert {t.get_parse_math() for t in ax.get_xticklabels()} == {True}
  assert {t.get_parse_math() for t in ax.get_legend().get_texts()} == {False}
