"""FedMLH's theory on a task's labels: the table and the picture."""

import pytest

from launch import theory
from tasks import experiment
from tests.launch import light
from tff_xc import errors

TASK = 'sparse-words-sets'


@pytest.mark.parametrize(
  ('arguments', 'problem'),
  [
    ((), '--task is missing: fedmlh/theory is of tasks whose examples keep'),
    (('--task=bibtex',), '--task=bibtex: fedmlh/theory is of tasks'),
    ((f'--task={TASK}', '--algorithm=fedavg'), 'fedmlh/theory is of fedmlh'),
    ((f'--task={TASK}', '--hash_tables=0'), '--hash_tables=0'),
  ],
)
def test_bad_input_is_one_sentence(arguments, problem):
  done = light.call('reproduce', 'fedmlh/theory', *arguments)
  light.assert_one_sentence(done, problem)


def config(**changes):
  small = {'num_classes': 60, 'num_features': 40, 'hash_buckets': 7}
  return experiment.resolve(TASK, 'fedmlh', small | changes)


@pytest.mark.parametrize('clients', [1, 5])
def test_a_table_and_a_picture(clients, tmp_path, monkeypatch):
  monkeypatch.setenv('COLUMNS', '100')
  runs = [
    theory.run(config(num_clients=clients), tmp_path / name) for name in 'ab'
  ]
  lines = runs[0].splitlines()
  assert lines[0] == f'FedMLH on {TASK}: 60 labels, 4 tables of 7 buckets'
  values = [line.split()[-1] for line in lines[4:-1]]
  assert values[0] == '14'  # (60 · 59 / 2 / 0.05)^(1/4) = 13.7
  alone, expected, observed = (float(v.replace(',', '')) for v in values[3:6])
  assert alone < observed <= 1.05 * expected
  pairs = 4 * clients * (clients - 1)
  assert lines[-2].endswith(f' 0 of {pairs}')
  if pairs:
    assert float(values[7]) < float(values[6])
  pictures = [(tmp_path / name / 'theory.png').read_bytes() for name in 'ab']
  assert pictures[0] == pictures[1]
  assert pictures[0].startswith(b'\x89PNG')


def test_a_directory_that_cannot_be_written_is_named(tmp_path):
  (tmp_path / 'file').write_text('')
  with pytest.raises(errors.InputError, match='file cannot be written'):
    theory.run(config(), tmp_path / 'file')
