"""Hosts on this machine, joined by a switch: Linux namespaces, for root only.

A host has an address, a name, processes, /tmp and /dev/shm of its own, and no way
to anywhere but the other hosts. Its first process ends with the process that made
it: then the kernel ends all processes of the host and removes its network.
"""

import contextlib
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator

import psutil

from tests.launch import light

_PATH = os.pathsep.join([os.environ.get('PATH', ''), '/usr/sbin', '/sbin'])
_NEW = (
  *('unshare', '--net', '--mount', '--uts', '--pid', '--fork'),
  *('--kill-child', '--mount-proc'),
)
# Waits for the end of stdin; the kernel forgets orphans that have ended.
_WAIT = 'exec env --ignore-signal=CHLD cat'
_OF_THIS_MACHINE = (
  'TFF_XC_CACHE',
  'TFF_XC_CLUSTER',
  'TMPDIR',
  'XDG_STATE_HOME',
)


def missing() -> str:
  """Returns why hosts cannot be made here, or ''."""
  if sys.platform != 'linux' or os.geteuid() != 0:
    return 'only root of a Linux machine can make network namespaces'
  for program in ('ip', 'unshare', 'nsenter'):
    if not shutil.which(program, path=_PATH):
      return f'{program} is not installed'
  made = subprocess.run(
    [*_NEW, 'true'], capture_output=True, text=True, check=False
  )
  return f'no namespaces here: {made.stderr}' if made.returncode else ''


class _First:
  """The first process of a set of namespaces, which ends with this one."""

  def __init__(self, script: str):
    self._made = subprocess.Popen(
      [*_NEW, 'sh', '-c', f'{script} && echo runs && {_WAIT}'],
      stdin=subprocess.PIPE,
      stdout=subprocess.PIPE,
    )
    try:
      assert self._made.stdout.readline() == b'runs\n'
      [child] = psutil.Process(self._made.pid).children()
    except BaseException:
      self.end()
      raise
    self.pid = child.pid

  def end(self) -> None:
    """Ends all processes of the namespaces at once; their network is gone."""
    with self._made:
      self._made.kill()


class Host:
  """One host."""

  def __init__(self, name: str, tmp: pathlib.Path, ip: str, switch: _First):
    self.name, self.tmp, self.ip = name, tmp, ip
    self._switch = switch
    (tmp / 'home').mkdir(parents=True)
    self.start()

  def start(self) -> None:
    """Starts it, again after its power was cut; its disk is as it was."""
    self._first = _First(_script(self.name, self.tmp))
    here, there = str(self._first.pid), str(self._switch.pid)
    try:
      _call(
        *('ip', 'link', 'add', 'name', 'eth0', 'netns', here, 'type', 'veth'),
        *('peer', 'name', self.name, 'netns', there),
      )
      # Many hosts have a second address that is the same on all, of Docker's.
      _ip(self._first, 'addr', 'add', '172.17.0.1/16', 'dev', 'eth0')
      _ip(self._first, 'addr', 'add', f'{self.ip}/24', 'dev', 'eth0')
      for device in ('lo', 'eth0'):
        _ip(self._first, 'link', 'set', device, 'up')
      _ip(self._switch, 'link', 'set', 'dev', self.name, 'master', 'switch')
      self.plug_cable()
    except BaseException:
      self.end()
      raise

  def command(self, *command: str) -> list[str]:
    """Returns the command that runs a command on this host."""
    return [
      *('nsenter', f'--target={self._first.pid}', '--net', '--mount', '--uts'),
      *('--pid', 'env', f'--chdir={light.ROOT}'),
      *(f'--unset={name}' for name in _OF_THIS_MACHINE),
      *('HOME=/tmp/home', f'PATH={_PATH}', *command),
    ]

  def run(
    self, *arguments: str, status: int = 0, seconds: int = 300
  ) -> subprocess.CompletedProcess:
    """Runs `python -m ARGUMENTS` here to its end."""
    # What is killed from outside would live on within.
    limit = ('timeout', '--kill-after=5', str(seconds))
    done = subprocess.run(
      self.command(*limit, sys.executable, '-m', *arguments),
      capture_output=True,
      text=True,
      check=False,
    )
    assert done.returncode == status, (done.stdout, done.stderr)
    return done

  def pull_cable(self) -> None:
    """Pulls the cable out at the switch."""
    _ip(self._switch, 'link', 'set', 'dev', self.name, 'down')

  def plug_cable(self) -> None:
    _ip(self._switch, 'link', 'set', 'dev', self.name, 'up')

  def cut_power(self) -> None:
    """Ends all processes at once, and no packet says so; the disk is kept."""
    _ip(self._switch, 'link', 'del', 'dev', self.name)
    self._first.end()

  def end(self) -> None:
    self._first.end()


@contextlib.contextmanager
def two(folder: pathlib.Path) -> Iterator[tuple[Host, Host]]:
  """Yields two hosts at a switch, with the addresses 10.77.0.1 and 10.77.0.2."""
  with contextlib.ExitStack() as stack:
    switch = _First('ip link add switch type bridge && ip link set switch up')
    stack.callback(switch.end)
    hosts = []
    for number, name in enumerate('ab', 1):
      host = Host(name, folder / name, f'10.77.0.{number}', switch)
      stack.callback(host.end)
      hosts.append(host)
    yield tuple(hosts)


def _ip(first: _First, *arguments: str) -> None:
  _call('nsenter', f'--target={first.pid}', '--net', 'ip', *arguments)


def _call(*command: str) -> None:
  subprocess.run(command, env={**os.environ, 'PATH': _PATH}, check=True)


def _script(name: str, tmp: pathlib.Path) -> str:
  """Returns what sets up a host."""
  lines = [f'hostname {name}', 'mount -t tmpfs none /dev/shm']
  for needed in {str(light.ROOT), sys.prefix, sys.base_prefix}:
    if needed.startswith('/tmp/'):
      seen = shlex.quote(str(tmp / needed.removeprefix('/tmp/')))
      lines.append(f'mkdir -p {seen}')
      lines.append(f'mount --bind {shlex.quote(needed)} {seen}')
  lines += [
    f'mount --rbind {shlex.quote(str(tmp))} /tmp',
  ]
  return ' && '.join(lines)
