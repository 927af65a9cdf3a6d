"""The data of pictures, and whether pictures are drawn."""

import matplotlib.figure
import matplotlib.image
import numpy as np
import pytest

from tests.report import fake_runs
from tff_xc.report import curves, methods, pictures, run_files, tables

# The methods of the fixture `runs`, in the order of its runs.
FEDSS, FULL, CENTRALIZED = 0, 3, 4


def read(path):
  return matplotlib.image.imread(path)


def plot_compare(frame, path, *more, **named):
  pictures.save(curves.compare_figure(frame, *more, **named), path)


def collect(tmp_path, *runs):
  """Returns new runs, each from its algorithm and the arguments of `write_run`."""
  folder = tmp_path / 'made' / str(len(runs))
  return tables.collect(
    [
      run_files.read_run(fake_runs.write_run(folder / f'{i}', name, **keys))
      for i, (name, keys) in enumerate(runs)
    ]
  )


def skewed(emd, **more):
  return {'emd': emd, 'settings': {'options': {'concentration': emd}}, **more}


def band(frame, *args):
  found = curves.band(frame, *args)
  return found[found['method'] == FEDSS].set_index('round')


def test_bands_are_means_and_sample_stds_over_what_was_spent(runs):
  runs[1].metrics.loc[3, 'top1'] = np.nan  # The score of round 4.
  frame = tables.collect(runs)
  found, spent = band(frame, 'top1'), band(frame, 'top1', 'bytes')
  assert found.index.tolist() == found['x'].tolist() == [2, *range(6, 21, 2)]
  for number, row in found.iterrows():
    until = [run.metrics[run.metrics['round'] <= number] for run in runs[:3]]
    at = [m['top1'].iloc[-1] for m in until]
    assert row['mean'] == spent['mean'][number] == pytest.approx(np.mean(at))
    assert row['std'] == pytest.approx(np.std(at, ddof=1))
    sent = [(m['bytes_down_per_client'] * m['clients']).sum() for m in until]
    assert spent['x'][number] == pytest.approx(np.mean(sent))
  assert (np.diff(band(frame, 'top1', 'seconds')['x']) > 0).all()
  assert len(curves.band(frame, 'p@1')) == 0


def test_what_a_client_is_sent_is_rows_times_dimensions(runs):
  [panel] = curves.points(tables.collect(runs))
  assert 'top-1' in panel.y_label
  assert 'number of class parameters' in panel.x_label
  points = panel.points[['x', 'mean', 'std']].to_numpy()
  of_three = 100 * np.mean(fake_runs.TOP1), 100 * np.std(fake_runs.TOP1, ddof=1)
  assert points[FEDSS] == pytest.approx([109 * 64, *of_three])
  assert points[FULL] == pytest.approx([964 * 64, 60, np.nan], nan_ok=True)
  assert np.isnan(points[CENTRALIZED][0])  # Centralized training sends no messages.
  assert not curves.points(tables.collect(runs[:4]))  # All values of x are equal.


def test_relative_scores_are_drawn_over_the_skew_of_clients(tmp_path):
  made = [
    ('fedavg', skewed(0.281, top1=0.6)),
    ('fedavg', skewed(1.8, top1=0.3)),
    ('fedavgm', skewed(1.8, top1=0.5)),
  ]
  frame = collect(tmp_path, *made)
  reference = collect(tmp_path, ('centralized', {'top1': 0.8, 'rows': None}))
  [panel] = curves.points(frame, reference)
  assert panel.points['x'].tolist() == [0.28, 1.8, 1.8]
  assert panel.points['mean'].tolist() == pytest.approx([75, 37.5, 62.5])
  assert panel.points['std'].isna().all()
  assert panel.points['line'].tolist() == ['FedAvg', 'FedAvg', 'FedAvgM']
  [other] = curves.points(frame, reference, 'map@r')
  assert 'MAP@R' in other.y_label
  assert other.points['mean'][0] == pytest.approx(75)
  [absolute] = curves.points(frame)
  assert absolute.points['mean'][0] == pytest.approx(60)
  # Centralized training, and a run without skew, have no points.
  others = [('fedprox', {}), ('centralized', {'rows': None, 'emd': 1.0})]
  more = collect(tmp_path, *made, *others)
  [panel] = curves.points(more, reference)
  assert panel.points['x'].notna().tolist() == [True] * 3 + [False] * 2
  # A line joins runs with equal hyperparameters.
  ax = matplotlib.figure.Figure().subplots()
  curves.draw_points(ax, panel)
  [joined] = [line for line in ax.lines if line.get_label() == 'FedAvg']
  assert joined.get_color() == methods.colour('fedavg')
  assert joined.get_xdata().tolist() == [0.28, 1.8]
  # A line also joins runs whose searched settings have the best values.
  rates = ((0.281, 0.1), (1.8, 0.01))
  best = [('fedavg', skewed(e, client_learning_rate=r)) for e, r in rates]
  tuned = collect(tmp_path / 'tuned', *best)
  [panel] = curves.points(tuned, searched=['client_learning_rate'])
  assert panel.points['line'].tolist() == ['FedAvg', 'FedAvg']
  [apart] = curves.points(tuned)
  assert apart.points['line'].nunique() == 2
  plot_compare(more, tmp_path / 'a.png', reference=reference)
  plot_compare(frame[:1], tmp_path / 'b.png', ['top1', 'mcc'], 'bytes')
  assert np.not_equal(*(read(tmp_path / f'{n}.png').shape[1] for n in 'ab'))


def test_a_comparison_is_drawn_again_to_the_same_bytes(tmp_path, runs):
  paths = [tmp_path / f'{name}.png' for name in 'ab']
  for path in paths:
    plot_compare(tables.collect(runs), path)
  assert paths[0].read_bytes() == paths[1].read_bytes()
  # The picture has three panels side by side, and is not blank.
  height, width, _ = read(paths[0]).shape
  assert width > 2 * height
  assert read(paths[0]).std() > 0.01
  assert not list(tmp_path.glob('.*'))  # No temporary file is left.


@pytest.mark.slow
def test_what_was_not_measured_has_no_panel_or_says_so(tmp_path, runs, recwarn):
  initial = collect(tmp_path, ('fedss', {'initial': True}))
  assert band(initial, 'top1').index.tolist() == [*range(0, 21, 2)]
  curves.plot_run(runs[2], tmp_path / 'without.png')
  runs[2].metrics['class_distance_min'] = runs[2].metrics['top1']
  curves.plot_run(runs[2], tmp_path / 'distances.png')
  a, b = (read(tmp_path / f'{n}.png') for n in ('without', 'distances'))
  assert len(b) == pytest.approx(len(a) * 3 / 2, abs=2)
  dropped = ['top1', 'map@10', 'map@r', 'loss']
  runs[0].metrics.drop(columns=dropped, inplace=True)
  runs[1].metrics[dropped] = np.nan
  unfinished = fake_runs.write_run(tmp_path / 'u', finished=False)
  for run in (*runs[:2], run_files.read_run(unfinished), initial['run'][0]):
    curves.plot_run(run, tmp_path / 'run.png')
  for frame in (initial, tables.collect(runs[:1]), tables.collect(runs[:2])):
    plot_compare(frame, tmp_path / 'frame.png')
  assert not recwarn.list


@pytest.mark.parametrize('count', [1, 6, 40])
def test_confusion_is_drawn_and_its_shape_checked(tmp_path, count):
  matrix = np.eye(count, count + 1, dtype=np.int64) * 3
  curves.plot_confusion(matrix, range(count), tmp_path / 'c.png')
  assert read(tmp_path / 'c.png').std() > 0.01
  with pytest.raises(ValueError, match='shape'):
    curves.plot_confusion(matrix[:, :-1], range(count), tmp_path / 'd.png')
  assert not (tmp_path / 'd.png').exists()


def test_a_dollar_is_a_character_except_in_labels_of_log_axes(tmp_path):
  names = ['$$', 'a$b_{$', 'price $5 or $10', r'\$x']
  matrix = np.eye(4, 5, dtype=int)
  curves.plot_confusion(matrix, names, tmp_path / 'b.png', 'client $x_{$')
  figure, [ax] = pictures.panels(1, 1, (3, 3))
  ax.plot([1, 1000], [1, 2], label='$a_{$')
  ax.set_xscale('log')
  ax.legend()
  pictures.save(figure, tmp_path / 'a.png')
  assert {t.get_parse_math() for t in ax.get_xticklabels()} == {True}
  assert {t.get_parse_math() for t in ax.get_legend().get_texts()} == {False}


def test_axes_are_in_percent_and_titles_name_task_rounds_and_seeds(runs):
  figure = curves.compare_figure(tables.collect(runs[:4]), finding='A is ahead')
  [ax, *_] = figure.axes
  assert ax.get_ylabel() == 'top-1 %'
  assert max(ax.lines[0].get_ydata()) > 40
  assert figure.get_suptitle().startswith('A is ahead\nomniglot, 20 rounds, mean ± std')
  [legend] = figure.legends
  told = [text.get_text() for text in legend.get_texts()]
  assert told == ['FedSS correction=negatives (3 seeds)', 'FedSS correction=none (1 seed)']
  loss = curves.compare_figure(tables.collect(runs[:1]), ['test_loss'])
  assert loss.axes[0].get_ylabel() == 'test loss'


def test_what_is_level_in_all_runs_has_no_panel(runs):
  frame = tables.collect(runs)

  def titles(figure):
    return [ax.get_title() for ax in figure.axes]

  assert 'MAP@10' in titles(curves.compare_figure(frame))
  for run in runs[1:]:
    run.metrics.loc[run.metrics['map@10'].notna(), 'map@10'] = 0.25
  assert 'MAP@10' in titles(curves.compare_figure(frame))
  runs[0].metrics.loc[runs[0].metrics['map@10'].notna(), 'map@10'] = 0.25
  assert 'MAP@10' not in titles(curves.compare_figure(frame))
  # The score gets a panel because the caller asks for it.
  [ax] = curves.compare_figure(frame, ['map@10']).axes
  assert (ax.get_title(), ax.get_ylabel()) == ('', 'MAP@10 %')
