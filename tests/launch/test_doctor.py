"""The doctor finds what is wrong with a machine and names the cure."""

import os
import pathlib
import re
import subprocess
import sys
import types

import pytest

from launch import doctor
from tasks import task as found
from tests import processes
from tests.datasets.images import on_disk
from tests.launch import light
from tff_xc import errors

_ROOT = pathlib.Path(__file__).parents[2]
_AVX = 'model name: x\nflags\t\t: fpu avx avx2\n'
_PINS = {'tensorflow-cpu': '2.14.1', 'tensorflow': '2.14.1', 'numpy': '1.25.2'}
_INSTALLED = dict.fromkeys(doctor._PINNED, '1')
_INSTALLED |= {'tensorflow-cpu': '2.14.1', 'numpy': '1.25.2'}


def _doctor(*flags, **env):
  return processes.python(
    *('-m', 'launch.doctor'),
    *flags,
    cwd=_ROOT,
    env={**os.environ, **env},
    stdin=subprocess.DEVNULL,
    timeout=300,
  )


def _rows(text):
  return {line[:12].strip(): line[12:].split(None, 1) for line in text}


@pytest.mark.slow
def test_names_a_problem_and_still_checks_the_rest(tmp_path):
  on_disk.classes(tmp_path / 'photos', {'cat': 2, 'dog': 2})
  given = ('--task=images', f'--data_dir={tmp_path / "photos"}')
  done = _doctor(*given, '--split=iid:9')
  assert done.stderr == ''
  *lines, last = done.stdout.splitlines()
  rows = _rows(lines)
  assert done.returncode == 1
  assert rows['data'][0] == 'PROBLEM'
  assert '--split=iid:9: there are 4 training examples' in done.stdout
  assert last == '1 problem found'
  for runtime in ('TFF worker', 'in_process'):
    state, found = rows[runtime]
    assert state == 'ok' and found.startswith('answers after')
  version = '.'.join(map(str, sys.version_info[:3]))
  assert rows['Python'] == ['ok', version]
  assert 'tensorflow-federated 0.87.0' in rows['packages'][1]


def test_bad_input_is_one_sentence():
  for flag in ('--worker_timeout_seconds=0', '--task=mnist', 'stray'):
    light.assert_one_sentence(light.call('doctor', flag), flag.split('=')[-1])
  # A flag of data that the task does not have.
  own = ('--data_dir=photos', '--task=images')
  for flags, message in (
    (('--split=class',), '--split goes with a task of your own data here'),
    (('--split=class', '--task=cifar10'), 'one of sparse-text,'),
    (('--label_column=a', *own), 'is not an option of task images'),
    (('--split=nowhere', *own), '--split=nowhere does not exist'),
  ):
    light.assert_one_sentence(light.call('doctor', *flags), message)


def test_without_the_packages_it_says_how_to_get_them():
  done = processes.python(
    *('-S', '-m', 'launch.doctor'),
    cwd=_ROOT,
    env={k: v for k, v in os.environ.items() if k != 'PYTHONPATH'},
  )
  assert done.returncode == 2
  assert re.match(r'error: \w+ is not installed', done.stderr)
  assert done.stderr.count('\n') == 1


def test_python_platform_and_memory():
  for version, is_problem in (
    ((3, 9, 18), True),
    ((3, 10, 0), False),
    ((3, 11, 7), False),
    ((3, 12, 1), True),
  ):
    assert doctor.check_python(version).is_problem == is_problem
  for system, processor, cpuinfo, cure in (
    ('Linux', 'x86_64', _AVX, ''),
    ('Linux', 'x86_64', 'flags : fpu avxes\n', 'AVX'),
    ('Linux', 'aarch64', '', 'Linux on x86-64'),
    ('Darwin', 'x86_64', '', 'Linux on x86-64'),
  ):
    check = doctor.check_platform(system, processor, cpuinfo)
    assert check.is_problem == bool(cure)
    assert cure in check.cure
  for gib, is_problem in ((0.5, True), (10, False)):
    check = doctor.check_room('', int(gib * doctor.GIB), doctor.GIB, '', 'do')
    assert check.found.startswith(f'{gib:.1f} GiB')
    assert check.is_problem == is_problem


def test_packages_are_compared_with_the_pins():
  pins = doctor.read_pins(
    '# numpy==0\nnumpy==1.25.2 \\\n    --hash=sha256:00\n    # via x\n'
    'tensorflow-cpu==2.14.1 ; python_version > "3"\ntensorflow==2.14.1\n'
  )
  assert pins == _PINS
  assert not doctor.check_packages(_INSTALLED, _PINS).is_problem
  wrong = doctor.check_packages({**_INSTALLED, 'numpy': '2.0.0'}, _PINS)
  assert wrong.cure.endswith('expected numpy 1.25.2')
  assert 'numpy 2.0.0' in wrong.found
  # Without either TensorFlow; the full one stands in for the small one.
  some = {k: v for k, v in _INSTALLED.items() if k != 'tensorflow-cpu'}
  missing = doctor.check_packages(some, _PINS)
  assert missing.cure.endswith('expected tensorflow-cpu 2.14.1')
  full = doctor.check_packages({**some, 'tensorflow': '2.14.1'}, _PINS)
  assert not full.is_problem


def _fails(directory):
  raise errors.InputError(f'no set in {directory}')


@pytest.mark.parametrize(
  ('find', 'is_chosen', 'is_problem', 'found'),
  [
    ({'a': _fails, 'b': str}, True, False, 'b in some'),
    ({'a': str, 'b': str}, False, False, 'a, b in some'),
    ({'a': _fails}, True, True, 'no data of a task in some'),
    ({'a': _fails}, False, False, 'no data of a task in some'),
  ],
)
def test_data_is_what_tasks_find(find, is_chosen, is_problem, found):
  check = doctor.check_data('some', is_chosen, find, dict.fromkeys(find, ''))
  assert check.found.startswith(found)
  assert check.is_problem == is_problem


def test_ones_own_data_and_a_part_of_a_set():
  find = {'a': str, 'b': lambda directory: found.Part('5 of 9 users')}
  needs = {'a': 'files', 'b': 'more', 'mine': 'photographs'}
  assert doctor.check_data('some', True, find, needs).table == [
    ['a', 'found', 'files'],
    ['b', '5 of 9 users', 'more'],
    ['mine', 'your own', 'photographs'],
  ]


@pytest.mark.parametrize('data_dir', [None, 'here'])
def test_sets_are_listed_only_where_they_are_asked_for(monkeypatch, data_dir):
  given = types.SimpleNamespace(task=None, data_dir=data_dir)
  monkeypatch.setattr(doctor.flags, 'FLAGS', given)
  check = doctor._check_data()
  assert len(check.table) > 40 if data_dir else not check.table


def test_the_data_of_one_task():
  check = doctor.check_task_data('a', 'some', lambda _: None)
  assert (check.found, check.is_problem) == ('a in some', False)
  check = doctor.check_task_data('a', 'some', lambda _: found.Part('3 images'))
  assert (check.found, check.is_problem) == ('a in some: 3 images', False)
  assert doctor.check_task_data('a', 'some', _fails).cure == 'no set in some'
  assert not doctor.check_task_data('a', 'some', None).is_problem


@pytest.mark.slow  # The command is also in the first test, and the check below it.
def test_each_task_says_what_it_needs_and_whether_it_is_there(tmp_path):
  (tmp_path / 'stackoverflow').mkdir()
  (tmp_path / 'stackoverflow' / 'train.h5').touch()  # No task loads it.
  (tmp_path / 'cifar10').mkdir()
  (tmp_path / 'cifar10' / 'a.webp').touch()  # No task loads this form.
  put_eurlex(tmp_path)
  done = _doctor(f'--data_dir={tmp_path}', COLUMNS='100')
  assert done.returncode == 0, done.stdout
  rows = _rows(done.stdout.splitlines())
  found = f'eurlex-4k, eurlex-4k-sets in {tmp_path}'
  assert rows['data'][1] == found
  assert 'stackoverflow' not in done.stdout
  lines = [line.split() for line in done.stdout.splitlines()]
  assert ['eurlex-4k', 'found'] in [line[:2] for line in lines]
  [cifar] = [line for line in lines if line[:1] == ['cifar10']]
  assert cifar[1:4] == ['missing', 'cifar10:', 'the']


def put_eurlex(folder):
  """Writes the two headers of Eurlex-4K; the check reads only these."""
  for part, size in (('train', 15539), ('test', 3809)):
    path = folder / 'xc' / f'eurlex_{part}.txt'
    path.parent.mkdir(exist_ok=True)
    path.write_text(f'{size} 5000 3993\n')


@pytest.mark.slow
def test_one_task_is_asked_for(tmp_path):
  done = _doctor('--task=omniglot', f'--data_dir={tmp_path}')
  rows = _rows(done.stdout.splitlines())
  assert done.returncode == 1
  assert rows['data'] == [
    'PROBLEM',
    f'omniglot cannot be loaded from {tmp_path}',
  ]
  assert 'omniglot_1623.npz' in done.stdout
  assert 'cifar10' not in done.stdout


def test_devices_and_runtimes():
  assert doctor.check_devices(2, True).found == 'CPU and 2 GPU'
  assert 'venv-gpu' in doctor.check_devices(0, True).found
  assert doctor.check_devices(0, False).found == 'CPU; no GPU'

  def breaks():
    raise AttributeError('no attribute x\nand more')

  assert not doctor.check_runtime('some', lambda: 6).is_problem
  assert doctor.check_runtime('some', lambda: 5).is_problem
  fails = doctor.check_runtime('some', lambda: _fails('some'))
  assert fails.cure == 'no set in some'
  broken = doctor.check_runtime('some', breaks)
  assert broken.found == 'does not run: AttributeError: no attribute x'
  assert 'make clean venv' in broken.cure
