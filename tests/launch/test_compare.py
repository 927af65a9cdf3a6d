"""`launch.compare`, as a function and from the command line."""

import csv
import json
import os
import subprocess
import sys

import pytest

from launch import compare
from tests.launch import light
from tests.report import fake_runs
from tff_xc import errors


@pytest.fixture
def sweep(tmp_path):
  """Makes runs/fedss/seed_{0,1,2}, runs/full, and a folder that is no run."""
  root = tmp_path / 'runs'
  for seed, top1 in enumerate((0.50, 0.53, 0.47)):
    fake_runs.write_run(
      root / 'fedss' / f'seed_{seed}', seed=seed, top1=top1, negatives=80
    )
  fake_runs.write_run(root / 'full', 'fullsoftmax', top1=0.6, rows=964.0)
  (root / 'notes').mkdir()
  (root / 'full' / 'checkpoints').mkdir()
  return root


def run_command(*arguments):
  return subprocess.run(
    [sys.executable, '-m', 'launch.compare', *map(str, arguments)],
    capture_output=True,
    text=True,
    timeout=120,
    check=False,
  )


def test_command_prints_the_table_and_writes_three_files(sweep):
  done = run_command(sweep)
  assert done.returncode == 0, done.stderr
  assert done.stderr == ''
  lines = done.stdout.splitlines()
  assert lines[0] == 'task omniglot, final scores'
  assert lines[3].split()[0] == 'fullsoftmax'
  assert 'fedss negatives=80' in lines[4]
  assert '50.0 ± 3.0' in lines[4]
  assert str(sweep) in lines[-1]
  written = {p.name for p in sweep.iterdir() if p.is_file()}
  assert written == {'compare.md', 'compare.csv', 'compare.png'}
  assert '| fedss negatives=80 | 3 |' in (sweep / 'compare.md').read_text()
  with open(sweep / 'compare.csv', newline='') as f:
    assert [row['seeds'] for row in csv.DictReader(f)] == ['0', '0 1 2']
  assert (sweep / 'compare.png').read_bytes().startswith(b'\x89PNG')


def test_the_table_fits_the_terminal_and_the_files_hold_all(sweep, monkeypatch):
  monkeypatch.setenv('COLUMNS', '60')
  done = run_command(sweep, '--metric=map@r')
  lines = done.stdout.splitlines()
  assert max(map(len, lines[:-1])) <= 60
  assert 'MAP@R %' in lines[1]
  assert any(line.startswith('more columns in compare.csv: ') for line in lines)
  heading = (sweep / 'compare.md').read_text().splitlines()[0]
  assert 's / round' in heading
  assert 's / round' not in lines[1]


def test_help_names_the_flags():
  done = light.call('compare', '--help')
  for flag in ('--output', '--metric', '--rounds', '--target'):
    assert flag in done.stdout


@pytest.mark.parametrize(
  ('arguments', 'message'),
  [
    ((), 'no run was named'),
    (('absent',), 'absent is no run directory, it does not exist'),
    (
      ('absent', '--metric=f1'),
      '--metric=f1: there is no such metric; there are top1',
    ),
    (('absent', '--metric=top1:x'), 'not of the form METRIC:VALUE'),
    (('absent', '--target=f1:0.5'), 'names no metric; there are top1'),
    (('absent', '--colour=red'), 'no flag --colour'),
  ],
)
def test_bad_input_is_one_sentence_and_status_2(arguments, message):
  light.assert_one_sentence(light.call('compare', *arguments), message)


def test_what_differs_besides_the_methods_is_said(tmp_path, monkeypatch):
  monkeypatch.setenv('COLUMNS', '60')
  own = {'server_optimizer': 'adam', 'negatives': 80}
  fake_runs.write_run(tmp_path / 'a', rounds=30, **own)
  fake_runs.write_run(tmp_path / 'b', rounds=30, seed=1, **own)
  same = {'server_optimizer': 'sgd', 'client_learning_rate': 0.1}
  fake_runs.write_run(tmp_path / 'c', 'fedavg', rounds=50, **same)
  text = compare.compare([tmp_path])
  expected = 'between the methods: rounds, server_optimizer'
  assert expected in ' '.join(text.split())
  assert max(map(len, text.splitlines()[:-1])) <= 60
  assert expected in (tmp_path / 'compare.md').read_text()
  of_one = compare.compare([tmp_path / 'a', tmp_path / 'b'])
  assert 'between the methods' not in of_one


def test_names_of_strangers_do_no_harm(tmp_path):
  bad = (
    '<img src=x onerror=alert(1)>\n\n# Heading\n\x1b]0;PWNED\x07 [a](b) $x$y$'
  )
  fake_runs.write_run(tmp_path / 'a', '=cmd|calc!A1')
  fake_runs.write_run(tmp_path / 'b', bad, negatives='\x1b[31m')
  text = compare.compare([tmp_path])
  markdown = (tmp_path / 'compare.md').read_text()
  csv_text = (tmp_path / 'compare.csv').read_text()
  for written in (text, markdown, csv_text):
    assert '\x1b' not in written
    assert '\n# ' not in written
  assert '<img' not in markdown
  assert '](b' not in markdown
  with open(tmp_path / 'compare.csv', newline='') as file:
    cells = [row['algorithm'] for row in csv.DictReader(file)]
  assert any(cell.startswith("'=cmd") for cell in cells)
  assert not any(cell.startswith('=') for cell in cells)


def test_runs_are_found_below_and_counted_once(sweep):
  fake_runs.write_run(sweep / 'full' / 'backup')  # Inside another run.
  found = compare.find_runs(
    [sweep / 'fedss' / 'seed_1', sweep, sweep / 'full' / '..' / 'full']
  )
  assert [str(path.relative_to(sweep)) for path in found] == [
    'fedss/seed_1',
    'fedss/seed_0',
    'fedss/seed_2',
    'full',
  ]


def test_output_and_metric_are_honoured(sweep, tmp_path):
  output = tmp_path / 'new' / 'out'
  text = compare.compare([sweep], output, 'map@10')
  assert sorted(p.name for p in output.iterdir()) == [
    'compare.csv',
    'compare.md',
    'compare.png',
  ]
  assert str(output) in text
  assert not (sweep / 'compare.md').exists()
  with pytest.raises(errors.InputError, match='none of the runs has a final'):
    compare.compare([sweep], output, 'train_top1')
  with pytest.raises(errors.InputError, match='the target mcc:0'):
    compare.compare([sweep], output, target='mcc:0.1')


def test_a_single_run_is_written_beside_it(sweep):
  compare.compare([sweep / 'full'])
  assert (sweep / 'compare.png').is_file()


def test_what_cannot_be_compared_is_refused(sweep, tmp_path):
  with pytest.raises(errors.InputError, match='notes is no run directory, no'):
    compare.compare([sweep / 'notes'])
  other = fake_runs.write_run(tmp_path / 'g', settings={'task': 'glyphs'})
  with pytest.raises(errors.InputError, match=r'task omniglot and .* glyphs'):
    compare.compare([sweep, other])
  unfinished = fake_runs.write_run(tmp_path / 'u', finished=False)
  with pytest.raises(errors.InputError, match=r'u has not finished.*launch\.t'):
    compare.compare([sweep, unfinished])
  file = tmp_path / 'file'
  file.write_text('')
  with pytest.raises(errors.InputError, match=r'cannot be written.*--output'):
    compare.compare([sweep], file / 'below')
  assert os.listdir(sweep / 'notes') == []


def test_runs_of_different_lengths_compare_after_the_same_rounds(tmp_path):
  short = fake_runs.write_run(tmp_path / 'short', rounds=10)
  long = fake_runs.write_run(tmp_path / 'long', 'fullsoftmax', rounds=20)
  text = compare.compare([short, long], tmp_path / 'out', rounds=10)
  with open(tmp_path / 'out' / 'compare.csv', newline='') as f:
    rows = {row['algorithm']: row for row in csv.DictReader(f)}
  with open(long / 'metrics.csv', newline='') as f:
    tenth = list(csv.DictReader(f))[9]
  assert set(rows) == {'fedss', 'fullsoftmax'}
  final = float(rows['fullsoftmax']['top1_mean'])
  assert final == pytest.approx(float(tenth['top1']))
  assert {float(row['rounds_mean']) for row in rows.values()} == {10}
  assert 'after 10 rounds' in text
  with pytest.raises(errors.InputError, match=r'no scores of round 9.*2, 4, 6'):
    compare.compare([long], tmp_path / 'out', rounds=9)


def test_runs_with_and_without_an_initial_evaluation_compare(tmp_path):
  """Runs of earlier versions have no row of round 0."""
  old = fake_runs.write_run(tmp_path / 'old', rounds=10)
  new = fake_runs.write_run(tmp_path / 'new', seed=1, rounds=10, initial=True)
  compare.compare([old, new], tmp_path / 'out')
  with open(tmp_path / 'out' / 'compare.csv', newline='') as f:
    [row] = csv.DictReader(f)
  assert (row['seeds'], row['rounds_mean']) == ('0 1', '10.0')
  text = compare.compare([old, new], tmp_path / 'out', rounds=6)
  assert 'after 6 rounds' in text
  with pytest.raises(errors.InputError, match=r'after rounds 0, 2, 4, 6'):
    compare.compare([new], tmp_path / 'out', rounds=9)


def test_rounds_to_targets_are_counted_anew(sweep, tmp_path):
  text = compare.compare(
    [sweep], tmp_path / 'out', metric='top1:0.40', target='map@10:0.1,top1:0.9'
  )
  heading = text.splitlines()[1]
  assert 'rounds to top-1 40 %' in heading  # Of `metric`, so it stays.
  assert '>20' in (tmp_path / 'out' / 'compare.md').read_text()
  with open(tmp_path / 'out' / 'compare.csv', newline='') as f:
    rows = list(csv.DictReader(f))
  assert {row['rounds_to_top1:0.9_mean'] for row in rows} == {''}
  assert [float(row['rounds_to_top1:0.4_mean']) > 0 for row in rows] == [
    True
  ] * 2
  # After ten rounds a target may not be reached yet.
  compare.compare([sweep], tmp_path / 'out', rounds=2, target='top1:0.4')
  assert '>2 ' in (tmp_path / 'out' / 'compare.md').read_text()


def test_scores_are_related_to_those_of_a_reference(sweep, tmp_path):
  whole = fake_runs.write_run(tmp_path / 'c', 'centralized', 0, 0.8, None)
  text = compare.compare([sweep], tmp_path / 'out', relative_to=whole)
  assert 'relative top-1 %' in text
  with open(tmp_path / 'out' / 'compare.csv', newline='') as f:
    rows = {row['algorithm'].split()[0]: row for row in csv.DictReader(f)}
  assert float(rows['fedss']['relative_top1_mean']) == pytest.approx(0.5 / 0.8)
  for name, row in rows.items():
    for part in (0.1, 0.5, 0.9):
      reached = row[f'rounds_to_relative_top1:{part}_by_seed'].split()
      paths = (
        sorted(sweep.glob('*/seed_*')) if name == 'fedss' else [sweep / 'full']
      )
      for path, number in zip(paths, reached, strict=True):
        with open(path / 'metrics.csv', newline='') as f:
          first = next(
            (
              r['round']
              for r in csv.DictReader(f)
              if float(r['top1'] or 0) >= part * 0.8
            ),
            '>20',
          )
        assert number == first
  # It may be one of the runs, and relates the score that is sorted by.
  text = compare.compare(
    [sweep], tmp_path / 'out', 'map@10', relative_to=sweep / 'full'
  )
  assert 'relative MAP@10 %' in text
  with open(tmp_path / 'out' / 'compare.csv', newline='') as f:
    assert next(csv.DictReader(f))['relative_map@10_mean'] == '1.0'


def test_batches_that_were_not_counted_are_refused(sweep, tmp_path):
  with pytest.raises(errors.InputError, match='did not count its batches; lea'):
    compare.compare([sweep], tmp_path / 'out', over='batches')
  assert not (tmp_path / 'out').exists()
  for path in sweep.rglob('metrics.csv'):
    heading, *lines = path.read_text().splitlines()
    lines = [f'{heading},local_batches', *(f'{line},3' for line in lines)]
    path.write_text('\n'.join(lines) + '\n')
  compare.compare(
    [sweep], tmp_path / 'out', over='batches', at='batches:12,batches:999'
  )
  heading, _, row, *_ = (
    (tmp_path / 'out' / 'compare.md').read_text().splitlines()
  )
  cells = dict(zip(heading.split('|'), row.split('|'), strict=True))
  assert cells[' top-1 % at 12 batches '] != ' – '
  assert cells[' top-1 % at 999 batches '] == ' – '


def test_a_reference_that_cannot_be_drawn_leaves_nothing(tmp_path):
  runs = [
    fake_runs.write_run(tmp_path / f'{emd}', emd=emd, negatives=emd)
    for emd in (1, 2)
  ]
  whole = fake_runs.write_run(tmp_path / 'c', 'centralized', 0, 0.8, None)
  summary = json.loads((whole / 'summary.json').read_text())
  summary['final']['top1'] = None
  (whole / 'summary.json').write_text(json.dumps(summary))
  with pytest.raises(errors.InputError, match='no reference for top1'):
    compare.compare(runs, tmp_path / 'out', relative_to=whole)
  assert not (tmp_path / 'out').exists()
  # Of the score that is named, it can.
  compare.compare(runs, tmp_path / 'out', 'map@10', relative_to=whole)
  assert (tmp_path / 'out' / 'compare.png').exists()


def test_a_reference_on_other_data_is_refused(tmp_path):
  of = lambda **data: {'data': {'clients': 5, **data}}
  ours = fake_runs.write_run(
    tmp_path / 'a', settings=of(classes=9, test_checksum='1', clients=7)
  )
  for name, data in (
    ('classes', {'classes': 8, 'test_checksum': '1'}),
    ('test_checksum', {'classes': 9, 'test_checksum': '2'}),
  ):
    whole = fake_runs.write_run(tmp_path / name, settings=of(**data))
    message = f'was run on other data than .*: {name} is'
    with pytest.raises(errors.InputError, match=message):
      compare.compare([ours], tmp_path / 'out', relative_to=whole)
  same = fake_runs.write_run(tmp_path / 'b', settings=of(classes=9))
  compare.compare([ours], tmp_path / 'out', relative_to=same)


def test_what_is_no_reference_is_refused(sweep, tmp_path):
  for path, message in (
    (sweep, r'--relative_to=.* is 2 configurations; give one'),
    (
      fake_runs.write_run(tmp_path / 'g', settings={'task': 'glyphs'}),
      r'is a run of task glyphs; give one configuration of task omniglot',
    ),
    (fake_runs.write_run(tmp_path / '0', top1=0), 'its final top1 is 0;'),
    (fake_runs.write_run(tmp_path / 'u', finished=False), 'has not finished'),
  ):
    with pytest.raises(errors.InputError, match=message):
      compare.compare([sweep], tmp_path / 'out', relative_to=path)
  assert not (tmp_path / 'out').exists()
