"""`launch.plan` without flags finds problems of a machine and says how to solve them."""

import os
import re
import subprocess

import pytest

from launch import machine
from tests import processes
from tests.launch import light


@pytest.mark.slow
def test_the_command_checks_the_machine():
  done = processes.python(
    '-m', 'launch.plan', cwd=light.ROOT, stdin=subprocess.DEVNULL, timeout=300
  )
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
  assert re.search('b +PROBLEM +old\n +cure +renew it\na +ok', capsys.readouterr().out)
  monkeypatch.setattr(machine, 'checks', lambda: iter(found[1:]))
  assert machine.tell() == 0


def test_without_the_packages_it_says_how_to_get_them():
  done = processes.python(
    '-S',
    '-m',
    'launch.plan',
    cwd=light.ROOT,
    env={k: v for k, v in os.environ.items() if k != 'PYTHONPATH'},
  )
  assert done.returncode == 2
  assert re.match(r'error: \w+ is not installed', done.stderr)
  assert done.stderr.count('\n') == 1


def test_memory_is_of_a_process_and_its_children():
  child = subprocess.Popen(['sleep', '60'])
  try:
    assert machine.peak_bytes(os.getpid()) > machine.peak_bytes(child.pid) > 1e5
  finally:
    child.kill()
    child.wait()
  assert machine.peak_bytes(child.pid) == 0


def test_a_processor_is_told_with_its_generation(monkeypatch, tmp_path):
  monkeypatch.setattr(machine, '_CPUINFO', tmp_path / 'cpuinfo')
  assert machine.processor() == 'unknown'
  monkeypatch.setattr(machine, '_GPUS', tmp_path)
  assert machine.describe()['gpus'] == []
  for flags, told in (('avx2 avx512f avx512_vnni', ', AVX-512 VNNI'), ('avx2', ', AVX2'), ('', '')):
    (tmp_path / 'cpuinfo').write_text(
      f'cpu family\t: 25\nmodel\t\t: 1\nmodel name\t: AMD EPYC\nflags\t\t: {flags}\n'
      '\nmodel\t\t: 2\nflags\t\t: avx512f\n'
    )
    assert machine.processor() == f'AMD EPYC (family 25, model 1{told})'
  (tmp_path / '0000:00:06.0').mkdir()
  (tmp_path / '0000:00:06.0' / 'information').write_text('Model: \t\t NVIDIA 6\nIRQ:   \t\t 45\n')
  assert machine.describe()['gpus'] == ['NVIDIA 6']


def test_what_is_wrong_has_a_cure(monkeypatch, tmp_path):
  def fails(runtime):
    raise AttributeError('no attribute x\nand more')

  def cures():
    return {name: cure for name, _, cure in machine.checks() if cure}

  (tmp_path / 'pins').write_text('# numpy==0\nnumpy==1.0 \\\n    --hash=sha256:00\n')
  (tmp_path / 'cpuinfo').write_text('flags : fpu avxes\n')
  monkeypatch.setattr(machine, '_sum', lambda runtime: 6)
  monkeypatch.setattr(machine, 'LEAST_DISK', 0)
  assert not cures()
  monkeypatch.setattr(machine, '_REQUIREMENTS', tmp_path / 'pins')
  monkeypatch.setattr(machine, '_CPUINFO', tmp_path / 'cpuinfo')
  monkeypatch.setattr(machine.memory, 'free_bytes', lambda: 10**8)
  monkeypatch.setattr(machine, '_sum', fails)
  found = cures()
  assert found.keys() == {'packages', 'platform', 'memory', 'TFF worker', 'in_process'}
  assert 'numpy 1.0' in found['packages'] and 'AVX' in found['platform']
  monkeypatch.setattr(machine.platform, 'machine', lambda: 'aarch64')
  assert 'Linux on x86-64' in cures()['platform']
