"""Tables that follow from formulas, by name."""

import subprocess
import sys

import pytest

from launch import reproduce
from tasks import photographs
from tasks import registry as tasks
from tasks.papers import fedmlh
from tasks.papers import registry
from tests.launch import light
from tff_xc import errors


def test_fedmlhs_sizes_are_the_papers(capsys):
  reproduce.main(['fedmlh/table4', 'fedmlh/table5'])
  shown = capsys.readouterr().out
  others = [line.split() for line in shown.splitlines() if line.endswith(' no')]
  ratios = [line for line in others if '/' in line]
  assert len(ratios) == 5
  assert shown.count('  yes\n') == 24 - len(others) == 18
  [other] = [line for line in others if '/' not in line]
  assert other == ['AMZtitle', 'fedavg', 'GiB', '135.0', '134.94', 'no']


def test_the_configurations_are_the_tasks_defaults(capsys):
  for found in fedmlh.CONFIGURATIONS:
    task = tasks.get(found.task)
    assert task.num_classes == found.labels
    options = task.option_values()
    assert options['hashed_features'] == found.features
    assert options['hidden_dim'] == found.hidden
    assert task.by_algorithm['fedmlh'] == {
      'hash_tables': found.tables,
      'hash_buckets': found.buckets,
    }
  reproduce.main(['fedmlh/table2'])
  assert '312,330' in capsys.readouterr().out


@pytest.mark.parametrize(
  ('names', 'problem'),
  [
    ([], 'name a table: fedmlh/theory'),
    (
      ['fedmlh/table9'],
      "unknown table 'fedmlh/table9': there are fedmlh/theory",
    ),
  ],
)
def test_other_names_are_refused(names, problem):
  with pytest.raises(errors.InputError, match=problem):
    reproduce.main(names)


def test_the_command_answers_with_status_2():
  done = subprocess.run(
    [sys.executable, '-m', 'launch.reproduce', 'table5'],
    capture_output=True,
    text=True,
    check=False,
  )
  assert (done.returncode, done.stdout) == (2, '')
  assert done.stderr.startswith("error: unknown table 'table5'")
  assert done.stderr.count('\n') == 1


@pytest.mark.parametrize(
  'arguments',
  [
    ['fedmlh/table5', '--rounds=3'],
    ['fedmlh/table5', '--task=bibtex-sets'],
    ['fedmlh/theory', '--task=bibtex-sets', '--seeds=1'],
    ['fedmlh/theory', '--task=bibtex-sets', '--client_learning_rate=3'],
  ],
)
def test_flags_without_use_are_refused(arguments):
  done = light.call('reproduce', *arguments)
  flag = arguments[-1].split('=')[0]
  light.assert_one_sentence(done, f'{flag}: {arguments[0]} has no use for it')


# Every photograph task of a table, with its first table.
_PHOTOGRAPHS = {
  task.name: found[0].name
  for task in photographs.TASKS
  if (found := registry.of_task(task.name))
}


def test_photographs_have_tables():
  assert set(_PHOTOGRAPHS) == {
    *('landmarks-user-160k', 'inaturalist-user-120k', 'inaturalist-geo-3k'),
    *('sop', 'imagenet21k'),
  }


@pytest.mark.parametrize(('task', 'name'), _PHOTOGRAPHS.items())
def test_without_its_photographs_a_table_says_where_they_are(
  task, name, tmp_path
):
  data, output = tmp_path / 'data', tmp_path / 'runs'
  arguments = (f'--task={task}', f'--data_dir={data}', f'--output={output}')
  done = light.call('reproduce', name, *arguments)
  with pytest.raises(errors.InputError) as told:  # What the doctor prints.
    tasks.get(task).find(str(data))
  light.assert_one_sentence(done, f'error: {told.value}\n')
  folder = data / task.partition('-')[0]
  for part in (f'{folder} has no images', f'{folder} has no clients', 'https:'):
    assert part in done.stderr
  assert f'launch.make_splits {task} --input=' in done.stderr
  assert not output.exists()
