"""`launch.plan` without flags finds what is wrong with a machine and names the cure."""

import os
import pathlib
import re
import subprocess

import pytest

from launch import machine
from tests import processes

_ROOT = pathlib.Path(__file__).parents[2]
_AVX = 'model name: x\nflags\t\t: fpu avx avx2\n'
_PINS = '# numpy==0\nnumpy==1.25.2 \\\n    --hash=sha256:00\n    # via x\n'


@pytest.mark.slow
def test_the_command_checks_the_machine():
  done = processes.python('-m', 'launch.plan', cwd=_ROOT, stdin=subprocess.DEVNULL, timeout=300)
  assert (done.returncode, done.stderr) == (0, '')
  *lines, last = done.stdout.splitlines()
  rows = {line[:12].strip(): line[12:].split(None, 1) for line in lines}
  for runtime in ('TFF worker', 'in_process'):
    assert rows[runtime] == ['ok', 'adds 1, 2 and 3 up to 6']
  assert 'tensorflow-federated 0.87.0' in rows['packages'][1]
  assert last.startswith('all is well')


def test_a_problem_is_counted_and_the_rest_is_checked(monkeypatch, capsys):
  found = [('b', 'old', 'renew it'), ('a', 'fine', '')]
  monkeypatch.setattr(machine, 'checks', lambda: iter(found))
  assert machine.tell() == 1
  out = capsys.readouterr().out
  assert re.search('b +PROBLEM +old\n +cure +renew it\na +ok', out)
  monkeypatch.setattr(machine, 'checks', lambda: iter(found[1:]))
  assert machine.tell() == 0


def test_without_the_packages_it_says_how_to_get_them():
  done = processes.python(
    '-S',
    '-m',
    'launch.plan',
    cwd=_ROOT,
    env={k: v for k, v in os.environ.items() if k != 'PYTHONPATH'},
  )
  assert done.returncode == 2
  assert re.match(r'error: \w+ is not installed', done.stderr)
  assert done.stderr.count('\n') == 1


@pytest.mark.parametrize(
  ('system', 'processor', 'cpuinfo', 'cure'),
  [
    ('Linux', 'x86_64', _AVX, ''),
    ('Linux', 'x86_64', 'flags : fpu avxes\n', 'AVX'),
    ('Linux', 'aarch64', '', 'Linux on x86-64'),
    ('Darwin', 'x86_64', '', 'Linux on x86-64'),
  ],
)
def test_platforms(system, processor, cpuinfo, cure):
  *_, found = machine.check_platform(system, processor, cpuinfo)
  assert bool(found) == bool(cure)
  assert cure in found


def test_a_processor_is_told_with_its_generation(monkeypatch, tmp_path):
  def of(flags):
    return machine.processor_of(
      f'cpu family\t: 25\nmodel\t\t: 1\nmodel name\t: AMD EPYC\nflags\t\t: {flags}\n'
      '\nmodel\t\t: 2\nflags\t\t: avx512f\n'
    )

  assert of('fpu avx avx2 avx512f avx512_vnni').endswith(', AVX-512 VNNI)')
  assert of('fpu avx avx2') == 'AMD EPYC (family 25, model 1, AVX2)'
  assert of('fpu avx') == 'AMD EPYC (family 25, model 1)'
  assert machine.processor_of('') == 'unknown'
  monkeypatch.setattr(machine, '_GPUS', tmp_path)
  assert machine.describe()['gpus'] == []
  (tmp_path / '0000:00:06.0').mkdir()
  told = tmp_path / '0000:00:06.0' / 'information'
  told.write_text('Model: \t\t NVIDIA 6\nIRQ:   \t\t 45\n')
  assert machine.describe()['gpus'] == ['NVIDIA 6']


def test_memory_is_of_a_process_and_its_children():
  child = subprocess.Popen(['sleep', '60'])
  try:
    bytes_of = machine.peak_bytes
    assert bytes_of(os.getpid()) > bytes_of(child.pid) > 1e5
  finally:
    child.kill()
    child.wait()
  assert machine.peak_bytes(child.pid) == 0


def test_room_packages_and_runtimes():
  assert machine.check_room('memory', 10**8, 2 * 10**9)[2].endswith('are free')
  assert machine.check_room('memory', 10**10, 2 * 10**9)[1:] == ('10.0 GB are free', '')
  assert not machine.check_packages({'numpy': '1.25.2', 'a': '1'}, _PINS)[2]
  *_, cure = machine.check_packages({'numpy': '2.0.0'}, _PINS)
  assert cure.endswith('expected numpy 1.25.2')

  def breaks():
    raise AttributeError('no attribute x\nand more')

  assert not machine.check_runtime('some', lambda: 6)[2]
  assert machine.check_runtime('some', lambda: 5)[2]
  _, found, cure = machine.check_runtime('some', breaks)
  assert found == 'does not run: AttributeError: no attribute x'
  assert 'make clean venv' in cure
