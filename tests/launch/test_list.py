"""`launch.list` prints every registered entry."""

import pathlib
import subprocess
import sys

import pytest

from launch.benchmarks import catalog as benchmarks
from tasks import encoders
from tasks import registry as tasks
from tasks.papers import registry as papers
from tests.datasets.leaf import on_disk
from tests.launch import light
from tff_xc.algorithms import registry as algorithms
from tff_xc.measure import catalog as metrics

ROOT = pathlib.Path(__file__).parents[2]
NAMES = {
  'tasks': tasks.TASKS,
  'algorithms': algorithms.ALGORITHMS,
  'encoders': encoders.ENCODERS,
  'metrics': metrics.METRICS,
  'benchmarks': benchmarks.BENCHMARKS,
  'tables': papers.TABLES,
}


def call(command, *arguments, columns=80, **more):
  return light.call(command, *arguments, COLUMNS=str(columns), **more)


@pytest.mark.parametrize('kind', NAMES)
@pytest.mark.parametrize('columns', [80, 160])
def test_every_name_is_listed_within_the_width(kind, columns):
  done = call('list', kind, columns=columns)
  assert done.returncode == 0, done.stderr
  lines = done.stdout.splitlines()
  assert max(map(len, lines)) <= columns
  assert set(NAMES[kind]) <= {line.split(' ')[0] for line in lines}


def words(text):
  return ' '.join(text.split())


def test_the_tables_tell_what_they_should():
  shown = {
    kind: words(call('list', kind, columns=999).stdout) for kind in NAMES
  }
  for task in tasks.TASKS.values():
    for part in (task.summary, task.data):
      assert words(part) in shown['tasks']
    if task.num_classes:
      assert f'{task.num_classes:,}' in shown['tasks']
  for name, algorithm in algorithms.ALGORITHMS.items():
    assert algorithm.paper, name
    for part in (*algorithm.answers, *algorithm.names):
      assert part, name
      assert words(part) in shown['algorithms']
  for metric in metrics.METRICS.values():
    assert metric.heading in shown['metrics']
    assert metric.meaning in shown['metrics']
  for benchmark in benchmarks.BENCHMARKS.values():
    assert benchmark.summary in shown['benchmarks']
  assert 'top-1 %: fedss 51.7 to 56.0, negonly 7.1' in shown['tasks']


def test_the_data_that_tables_need_are_marked_if_they_are_missing(tmp_path):
  text = words(
    call('list', 'tables', columns=999, TFF_XC_DATA=str(tmp_path)).stdout
  )
  assert f'looked for in {tmp_path}' in text
  small = words(papers.TABLES['fedss/table2'].small.what)
  assert f'fedss/table2 {small} sop (missing)' in text
  # Of studies, too.
  assert 'm = 5: the data of landmarks-user-160k (missing)' in text
  assert 'bibtex (missing), delicious (missing); of one with --task' in text
  assert 'fedvc/fig1 a diagram nothing' in text
  assert 'fedmlh/table5 formulas nothing' in text
  done = call('list', 'tables', columns=999, TFF_XC_DATA='/' + 300 * 'x')
  assert 'bibtex (missing)' in words(done.stdout), done.stderr


def test_the_files_of_tables_are_found_without_large_packages(
  tmp_path, monkeypatch
):
  (tmp_path / 'cifar-10-batches-bin').mkdir()
  for name in ('femnist', 'celeba', 'shakespeare'):
    for part in ('train', 'test'):
      users = {name: ([], [])}
      on_disk.write(tmp_path / name / part / 'a.json', users)
  (tmp_path / 'celeba' / 'img_align_celeba').mkdir()
  for part, size in (('train', '4880'), ('test', '2515')):
    (tmp_path / f'bibtex_{part}.txt').write_text(f'{size} 1836 159\n')
  monkeypatch.setenv('TFF_XC_DATA', str(tmp_path))
  monkeypatch.setenv('COLUMNS', '999')
  done = light.call('list', 'tables')  # It fails if they are imported.
  assert done.returncode == 0, done.stderr
  text = words(done.stdout)
  assert 'bibtex, delicious (missing); of one with --task' in text
  assert 'femnist (1 of 3,550 users), celeba (1 of 9,343 users)' in text
  assert 'shakespeare (1 of 1,129 users)' in text


def test_bad_input_is_one_sentence():
  for arguments in ((), ('task',), ('tasks', 'metrics')):
    light.assert_one_sentence(call('list', *arguments), 'name what to list')


def test_a_reader_that_goes_away_is_no_error():
  """Like `python -m launch.list tasks | head -1`."""
  for command in ('list tasks', 'train --help'):
    module, *arguments = command.split()
    process = subprocess.Popen(
      [sys.executable, '-m', f'launch.{module}', *arguments],
      cwd=ROOT,
      stdout=subprocess.PIPE,
      stderr=subprocess.PIPE,
    )
    process.stdout.close()
    with process.stderr:
      assert process.stderr.read() == b''
    assert process.wait() == 141


def test_the_help_of_train_is_no_wall():
  text = call('train', '--help', columns=80).stdout
  for flag, kind in (('task', 'tasks'), ('algorithm', 'algorithms')):
    [part] = [p for p in text.split('\n  --') if p.startswith(f'{flag}: ')]
    assert len(part.splitlines()) <= 12
    assert f'launch.list {kind}' in words(part)
    for name in NAMES[kind]:
      assert name in words(part).replace('- ', '-')  # Broken at hyphens.
