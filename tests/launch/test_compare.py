"""`launch.compare`, as a function and from the command line."""

import csv
import json
import os

import pytest
from absl import flags

from launch import compare
from tasks import configuration
from tests import processes
from tests.report import fake_runs
from tff_xc import errors, files
from tff_xc.report import tables

# Tests that start commands draw pictures.
pytestmark = pytest.mark.usefixtures('blank_pictures')


@pytest.fixture
def sweep(tmp_path):
  """Writes runs/fedss/seed_{0,1,2}, runs/full, and a folder that is not a run."""
  root = tmp_path / 'runs'
  for seed, top1 in enumerate((0.50, 0.53, 0.47)):
    fake_runs.write_run(root / 'fedss' / f'seed_{seed}', seed=seed, top1=top1, negatives=80)
  fake_runs.write_run(root / 'full', 'fullsoftmax', top1=0.6, rows=964.0)
  (root / 'notes').mkdir()
  (root / 'full' / 'checkpoints').mkdir()
  return root


@pytest.fixture(name='out')
def _out(tmp_path):
  return tmp_path / 'out'


def read_csv(path):
  with open(path, newline='') as file:
    return list(csv.DictReader(file))


def rows_of(out):
  """Returns the rows of compare.csv by algorithm."""
  return {row['algorithm'].split()[0]: row for row in read_csv(out / 'compare.csv')}


@pytest.mark.slow
def test_command_prints_the_table_and_writes_four_files(sweep, monkeypatch):
  monkeypatch.setenv('COLUMNS', '60')
  done = processes.python(
    '-m', 'launch.compare', str(sweep), '--metric=map@r', '--picture_format=pdf', timeout=120
  )
  assert (done.returncode, done.stderr) == (0, '')
  check_what_is_printed_and_written(sweep, done.stdout, {'md', 'csv', 'png', 'pdf'})


def test_the_table_is_printed_and_three_files_are_written(sweep, monkeypatch, capsys):
  """As the command does with these flags, in this process."""
  values = flags.FlagValues()
  for name in ('curves', 'columns'):
    flags.DEFINE_list(name, [], '', values)
  for name in ('csv', 'output', 'target', 'at', 'relative_to', 'rounds', 'picture_format'):
    flags.DEFINE_string(name, None, '', values)
  for name, value in (('metric', 'map@r'), ('over', 'rounds')):
    flags.DEFINE_string(name, value, '', values)
  values(['compare'])
  monkeypatch.setattr(flags, 'FLAGS', values)
  monkeypatch.setenv('COLUMNS', '60')
  compare.main([str(sweep)])
  check_what_is_printed_and_written(sweep, capsys.readouterr().out, {'md', 'csv', 'png'})


def check_what_is_printed_and_written(sweep, said, kinds):
  lines = said.splitlines()
  assert [line.split()[0] for line in lines[3:5]] == ['fullsoftmax', 'fedss']
  # The table fits the terminal, and the files contain all columns.
  assert max(map(len, lines[:-1])) <= 60
  assert 'MAP@R %' in lines[1] and 's / round' not in lines[1]
  written = {p.name for p in sweep.iterdir() if p.is_file()}
  assert written == {f'compare.{kind}' for kind in kinds}
  markdown = (sweep / 'compare.md').read_text()
  assert 's / round' in markdown and '50.0 ± 3.0' in markdown
  assert [row['seeds'] for row in read_csv(sweep / 'compare.csv')] == ['0', '0 1 2']


def test_what_differs_besides_the_methods_is_said(tmp_path):
  own = {'server_optimizer': 'adam', 'negatives': 80}
  fake_runs.write_run(tmp_path / 'a', rounds=30, **own)
  fake_runs.write_run(tmp_path / 'b', rounds=30, seed=1, **own)
  fake_runs.write_run(
    tmp_path / 'c', 'fedavg', rounds=50, server_optimizer='sgd', client_learning_rate=0.1
  )
  compare.compare([tmp_path])
  assert 'between the methods: rounds, server_optimizer' in (tmp_path / 'compare.md').read_text()
  assert 'between the methods' not in compare.compare([tmp_path / 'a', tmp_path / 'b'])


def test_baselines_without_training_stand_below_the_table(tmp_path):
  for name, value in (('a', 0.21), ('b', 0.21), ('c', 0.5)):
    run = fake_runs.write_run(tmp_path / name, seed=ord(name))
    summary = files.read_json(run / 'summary.json')
    summary['baselines'] = {'markov': {'hit@10': value}}
    files.write_json(run / 'summary.json', summary)
  text = compare.compare([tmp_path / 'a', tmp_path / 'b'])
  assert 'markov: hit@10 21.0 %' in text
  assert 'markov: hit@10 21.0 %' in (tmp_path / 'compare.md').read_text()
  # Runs with different test sets have no common baselines.
  assert 'markov' not in compare.compare([tmp_path])


@pytest.mark.parametrize(
  ('made', 'expected'),
  [
    # Defaults of the algorithm or the task, and settings that follow from the user's settings.
    ([('fedavg', {}), ('fedss', {})], ['fedavg', 'fedss']),
    (
      [
        ('fedss', {'negatives': 5, 'server_optimizer': 'sgd'}),
        ('posonly', {'dp': 'central', 'dp_clip': 0.5}),
      ],
      ['fedss server_optimizer=sgd negatives=5', 'posonly dp=central dp_clip=0.5'],
    ),
    # Settings that both runs have are named only if nothing else distinguishes the runs.
    (
      [('fedss', {'batch_size': 8, 'rounds': r}) for r in (20, 40)],
      ['fedss rounds=20', 'fedss rounds=40'],
    ),
    # The files of a run may be missing, because they are not read.
    ([('fedavg', {}), ('fedavg', {'split': 'gone.csv'})], ['fedavg', 'fedavg split=gone.csv']),
  ],
)
def test_a_run_is_named_by_what_was_chosen(made, expected, tmp_path):
  for place, (algorithm, changes) in enumerate(made):
    config = configuration.resolve(
      'images', algorithm, {'data_dir': 'gone', 'classes': 'gone', **changes, 'split': ''}
    )
    config['options']['split'] = changes.get('split', '')
    fake_runs.write_run(tmp_path / f'{place}', rounds=config['rounds'], settings=config)
  assert compare.collect([tmp_path])['label'].tolist() == expected


@pytest.mark.parametrize(
  ('task', 'changes'),
  [
    ('glyphs', {'start_from': 'gone', 'start_from_rows': 'none'}),
    ('cifar10-dirichlet', {'split': 'class', 'clients_per_class': 2}),
    ('cifar10', {'split': 'iid:100', 'data_seed': 3}),
  ],
)
def test_a_setting_and_its_source_are_kept(task, changes, tmp_path):
  config = configuration.resolve(task, 'fedavg', changes)
  run = fake_runs.write_run(tmp_path / 'run', rounds=config['rounds'], settings=config)
  compare.keep([run], tmp_path / 'kept.csv')
  [row] = read_csv(tmp_path / 'kept.csv')
  assert {f'--{name}={value}' for name, value in changes.items()} <= {*row['command'].split()}


def test_a_kept_command_chooses_as_the_run(tmp_path):
  changes = {'best_by': 'mcc', 'early_stopping_patience': 3, 'target': 'top1:0.2'}
  for name, given in (('a', changes), ('b', {})):
    config = configuration.resolve('glyphs', 'fedavg', {**given, 'rounds': 20})
    fake_runs.write_run(tmp_path / name, settings=config)
    compare.keep([tmp_path / name], tmp_path / 'kept.csv')
    [row] = read_csv(tmp_path / 'kept.csv')
    words = {*row['command'].split()}
    flags_ = {f'--{n}={v}' for n, v in changes.items()}
    assert words & flags_ == (flags_ if given else set())
    assert given or '--target' not in row['command']


def test_names_of_strangers_do_no_harm(tmp_path):
  bad = '<img src=x onerror=alert(1)>\n\n# Heading\n\x1b]0;PWNED\x07 [a](b) $x$y$'
  fake_runs.write_run(tmp_path / 'a', '=cmd|calc!A1')
  fake_runs.write_run(tmp_path / 'b', bad, negatives='\x1b[31m')
  text = compare.compare([tmp_path])
  markdown = (tmp_path / 'compare.md').read_text()
  csv_text = (tmp_path / 'compare.csv').read_text()
  # Labels are for people, so control characters are escaped.
  for written in (text, markdown, csv_text):
    assert '\x1b' not in written
    assert '\n# ' not in written
  assert '<img' not in markdown
  assert '](b' not in markdown
  labels = [row['algorithm'] for row in read_csv(tmp_path / 'compare.csv')]
  assert any(label.startswith('=cmd') for label in labels)


def test_runs_are_found_below_and_written_where_asked(sweep, out):
  fake_runs.write_run(sweep / 'full' / 'backup')  # A run inside another run.
  found = compare.find_runs([sweep / 'fedss' / 'seed_1', sweep, sweep / 'full' / '..' / 'full'])
  assert [str(path.relative_to(sweep)) for path in found] == [
    'fedss/seed_1',
    'fedss/seed_0',
    'fedss/seed_2',
    'full',
  ]
  assert str(out / 'new') in compare.compare([sweep], out / 'new', 'map@10')
  assert len(list((out / 'new').iterdir())) == 3
  assert not (sweep / 'compare.md').exists()
  compare.compare([sweep / 'full'])  # For a single run, the files are written into its folder.
  assert (sweep / 'compare.png').is_file()


def test_runs_behind_links_are_found_once(sweep, tmp_path):
  (tmp_path / 'links').mkdir()
  (tmp_path / 'links' / 'full').symlink_to(sweep / 'full')
  (tmp_path / 'links' / 'links').symlink_to(tmp_path / 'links')
  assert compare.find_runs([tmp_path / 'links']) == [tmp_path / 'links' / 'full']


def test_what_cannot_be_compared_is_refused(sweep, tmp_path, out):
  other = fake_runs.write_run(tmp_path / 'g', settings={'task': 'glyphs'})
  unfinished = fake_runs.write_run(tmp_path / 'u', finished=False)
  zero = fake_runs.write_run(tmp_path / '0', top1=0)
  (tmp_path / 'file').write_text('')
  below = {'output': tmp_path / 'file' / 'below'}
  for paths, given, message in (
    ([sweep / 'notes'], {}, 'notes is no run directory, no'),
    ([sweep, other], {}, 'task omniglot and .* glyphs'),
    ([sweep, unfinished], {}, 'u has not finished'),
    ([sweep], below, 'cannot be written.*--output'),
    ([sweep], {'metric': 'train_top1'}, 'train_top1'),
    ([sweep], {'target': 'mcc:0.1'}, 'the target mcc:0'),
    ([sweep], {'columns': ['relative_top1']}, 'give --relative_to'),
    ([sweep], {'columns': ['best.round']}, 'best.round: no run has it'),
    ([sweep], {'columns': ['accuracy@10']}, 'no column'),
    ([sweep], {'relative_to': sweep}, '--relative_to=.* is 2 configurations'),
    ([sweep], {'relative_to': other}, 'run of task glyphs'),
    ([sweep], {'relative_to': zero}, 'its final top1 is 0'),
    ([sweep], {'relative_to': unfinished}, 'has not finished'),
  ):
    with pytest.raises(errors.InputError, match=message):
      compare.compare(paths, **{'output': out, **given})
  assert not out.exists()
  assert os.listdir(sweep / 'notes') == []


def test_runs_of_different_lengths_compare_after_the_same_rounds(tmp_path, out):
  short = fake_runs.write_run(tmp_path / 'short', rounds=10)
  long = fake_runs.write_run(tmp_path / 'long', 'fullsoftmax', rounds=20)
  text = compare.compare([short, long], out, rounds=10)
  tenth = read_csv(long / 'metrics.csv')[9]
  assert float(rows_of(out)['fullsoftmax']['top1_mean']) == pytest.approx(float(tenth['top1']))
  assert {row['rounds_mean'] for row in rows_of(out).values()} == {'10.0'}
  assert 'after 10 rounds' in text
  with pytest.raises(errors.InputError, match=r'of round 9.*2, 4, 6'):
    compare.compare([long], out, rounds=9)


def test_scores_are_related_to_those_of_a_reference(sweep, tmp_path, out):
  whole = fake_runs.write_run(tmp_path / 'c', 'centralized', 0, 0.8, None)
  text = compare.compare([sweep], out, relative_to=whole)
  assert 'relative top-1 %' in text
  row = rows_of(out)['fullsoftmax']
  assert float(row['relative_top1_mean']) == pytest.approx(0.6 / 0.8)
  scores = read_csv(sweep / 'full' / 'metrics.csv')
  reached = [each['round'] for each in scores if float(each['top1'] or 0) >= 0.5 * 0.8]
  assert row['rounds_to_relative_top1:0.5_by_seed'] == reached[0]
  # The reference may be one of the runs. Scores are divided by its score in the sorted metric.
  text = compare.compare([sweep], out, 'map@10', relative_to=sweep / 'full')
  assert 'relative MAP@10 %' in text
  assert rows_of(out)['fullsoftmax']['relative_map@10_mean'] == '1.0'


def test_scores_at_budgets_and_further_columns_are_shown(sweep, out):
  # One of the runs has selected a best round.
  path = sweep / 'full' / 'summary.json'
  path.write_text(
    json.dumps(json.loads(path.read_text()) | {'best_round': {'by': 'top1', 'round': 4}})
  )
  compare.compare([sweep], out, over='bytes', at='rounds:12', columns=['top1@10', 'best.round'])
  [heading, *_] = (out / 'compare.md').read_text().splitlines()
  assert 'top-1 % after 10 rounds' in heading and 'top-1 % at 12 rounds' in heading
  assert [rows_of(out)[n]['best.round_mean'] for n in ('fullsoftmax', 'fedss')] == ['4.0', '']


def test_a_reference_that_cannot_be_drawn_leaves_nothing(tmp_path, out):
  runs = [fake_runs.write_run(tmp_path / f'{emd}', emd=emd, negatives=emd) for emd in (1, 2)]
  whole = fake_runs.write_run(tmp_path / 'c', 'centralized', 0, 0.8, None)
  summary = json.loads((whole / 'summary.json').read_text())
  summary['final']['top1'] = None
  (whole / 'summary.json').write_text(json.dumps(summary))
  with pytest.raises(errors.InputError, match='no reference for top1'):
    compare.compare(runs, out, relative_to=whole)
  assert not out.exists()
  # The reference has a score map@10, so pictures of this score can be drawn.
  compare.compare(runs, out, 'map@10', relative_to=whole)
  assert (out / 'compare.png').exists()


def test_a_reference_on_other_data_is_refused(tmp_path, out):
  def of(**data):
    return {'data': {'clients': 5, **data}}

  ours = fake_runs.write_run(tmp_path / 'a', settings=of(classes=9, test_checksum='1', clients=7))
  for name, data in (
    ('classes', {'classes': 8, 'test_checksum': '1'}),
    ('test_checksum', {'classes': 9, 'test_checksum': '2'}),
  ):
    whole = fake_runs.write_run(tmp_path / name, settings=of(**data))
    with pytest.raises(errors.InputError, match=f'other data .*: {name} was'):
      compare.compare([ours], out, relative_to=whole)
  compare.compare(
    [ours], out, relative_to=fake_runs.write_run(tmp_path / 'b', settings=of(classes=9))
  )


def test_a_table_is_kept_for_a_page(tmp_path):
  rate = {'client_learning_rate': 0.25}
  for seed in (0, 1):
    fake_runs.write_run(tmp_path / f'b{seed}', seed=seed, negatives=5, **rate)
  whole = fake_runs.write_run(
    tmp_path / 'c', 'posonly', top1=0.8, settings={'versions': {'tensorflow-cpu': '2'}}, **rate
  )
  path, columns = tmp_path / 'kept.csv', ['top1@10', 'relative_top1']
  compare.keep([tmp_path / 'b0', tmp_path / 'b1', whole], path, columns, whole)
  first, second = read_csv(path)  # In the order of the runs.
  # The learning rates are equal.
  assert [row['algorithm'] for row in (first, second)] == ['fedss negatives=5', 'posonly']
  assert float(first['relative_top1_mean']) == pytest.approx(0.5 / 0.8)
  assert float(first['top1@10_mean']) > 0
  assert (first['seeds'], first['revision']) == ('0 1', '0000000 0000001')
  assert (first['processor'], second['processor']) == ('', 'CPU')
  given = {'--algorithm=fedss', '--client_learning_rate=0.25', '--negatives=5', '--rounds=20'}
  assert given <= {*first['command'].split()}
  assert '--seed' not in first['command']  # The row has two seeds.
  assert second['command'].endswith('--seed=0')
  assert not any(name.startswith('psp@') for name in first)  # No run has this score.
  assert len(tables.read_csv(path)) == 2
  with pytest.raises(errors.InputError, match='cannot be written'):
    compare.keep([whole], tmp_path / 'no' / 'a.csv')


def test_a_kept_command_has_what_applies_beside_another_change(tmp_path):
  private = {'dp': 'central', 'dp_clip': 0.5, 'dp_delta': 1e-5}
  for z in (0.0, 0.1):
    fake_runs.write_run(tmp_path / f'{z}', dp_noise_multiplier=z, **private)
  path = tmp_path / 'kept.csv'
  compare.keep([tmp_path / '0.0', tmp_path / '0.1'], path)
  noiseless, noisy = read_csv(path)
  assert noiseless['algorithm'] == 'fedss dp_noise_multiplier=0.0'
  assert noisy['algorithm'] == 'fedss dp_noise_multiplier=0.1'
  assert '--dp_clip=0.5' in noisy['command'].split()
  assert '--dp_delta' not in noisy['command']  # The setting has its default.


def test_a_file_is_no_directory(tmp_path):
  (tmp_path / 'file').touch()
  for name, word in (('file', 'it is no directory'), ('absent', 'it does not exist')):
    with pytest.raises(errors.InputError, match=word):
      compare.find_runs([tmp_path / name])
