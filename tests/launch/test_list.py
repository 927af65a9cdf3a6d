"""`launch.list` prints every registered entry."""

import pytest

from launch import benchmark as benchmarks
from tasks import encoders, registry as tasks
from tasks.papers import registry as papers
from tests.datasets.leaf import on_disk
from tests.launch import light
from tff_xc.algorithms import registry as algorithms
from tff_xc.measure import catalog as metrics

NAMES = {
  'tasks': tasks.TASKS,
  'algorithms': algorithms.ALGORITHMS,
  'encoders': encoders.ENCODERS,
  'metrics': metrics.METRICS,
  'benchmarks': benchmarks.BENCHMARKS,
  'tables': papers.TABLES,
}


def words(text):
  return ' '.join(text.split())


@pytest.mark.parametrize('kind', NAMES)
def test_every_name_is_listed_within_the_width(kind):
  for columns in (80, 160) if kind == 'tasks' else (80,):
    done = light.call('list', kind, COLUMNS=str(columns))
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) <= columns
    assert set(NAMES[kind]) <= {line.split(' ')[0] for line in lines}


def test_the_data_that_tables_need_are_marked_if_they_are_missing(tmp_path):
  for part in ('train', 'test'):
    on_disk.write(tmp_path / 'femnist' / part / 'a.json', {'f1': ([], [])})
  for part, size in (('train', '4880'), ('test', '2515')):
    (tmp_path / f'bibtex_{part}.txt').write_text(f'{size} 1836 159\n')
  # The command fails if it imports large packages.
  done = light.call('list', 'tables', COLUMNS='999', TFF_XC_DATA=str(tmp_path))
  assert done.returncode == 0, done.stderr
  text = words(done.stdout)
  small = words(papers.TABLES['fedss/table2'].form('small').what)
  for expected in (
    f'looked for in {tmp_path}',
    f'fedss/table2 {small} sop (missing)',
    # The data of studies are listed, too.
    'fedss/table1: the data of landmarks-user-160k (missing)',
    'bibtex, delicious (missing); of one with --task',
    'femnist (1 of 3,550 users)',
    'fedvc/fig1 a diagram nothing',
    'fedmlh/table5 formulas nothing',
  ):
    assert expected in text
  done = light.call('list', 'tables', COLUMNS='999', TFF_XC_DATA='/' + 300 * 'x')
  assert 'bibtex (missing)' in words(done.stdout), done.stderr
