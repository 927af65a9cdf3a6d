"""Calls every port of a cluster as a stranger would, who must be refused.

On another host than the one that listens:
  python -m tests.runtime.cluster.strangers ports FOLDER    # prints them as JSON
  python -m tests.runtime.cluster.strangers call FOLDER IP  # reads them from stdin
FOLDER is that of `launch.workers` on the host itself.
"""

import json
import pathlib
import socket
import sys

import psutil

from tff_xc.runtime.cluster import head
from tff_xc.runtime.cluster import processes
from tff_xc.runtime.cluster import state

METHODS = (
  '/ray.rpc.NodeInfoGcsService/GetClusterId',
  '/ray.rpc.NodeManagerService/GetResourceLoad',
  '/ray.rpc.ObjectManagerService/FreeObjects',
  '/ray.rpc.CoreWorkerService/GetCoreWorkerStats',
)


def listening(*started: state.Node):
  """Returns the addresses, (IP, port), on which processes of nodes listen."""
  return [
    connection.laddr
    for process in processes.marked([n.mark for n in started])
    for connection in process.net_connections('inet')
    if connection.status == 'LISTEN'
  ]


def check(folder: pathlib.Path, address: str, tls: bool) -> str:
  """Asserts that a port refuses strangers; returns 'grpc' or 'http'."""
  token = (folder / 'token').read_text()
  wrong = '0' * 64
  if status := _http(address, ''):
    assert (status, _http(address, wrong)) == ('401', '403')
    assert _http(address, token) == '404'  # The page, not the caller.
    return 'http'
  files = [(folder / n).read_bytes() for n in head._TLS_FILES] if tls else []
  assert 'OK' in _grpc(address, token, files), address
  for given in ('', wrong):
    codes = _grpc(address, given, files)
    assert codes <= {'UNAUTHENTICATED', 'UNIMPLEMENTED'}, (address, codes)
    assert 'UNAUTHENTICATED' in codes, address
  if tls:
    assert _grpc(address, token, []) == {'UNAVAILABLE'}
    # It knows the authority, and has no certificate of its own.
    assert _grpc(address, token, files[:1]) == {'UNAVAILABLE'}
  return 'grpc'


def _grpc(address: str, token: str, files: list[bytes]) -> set[str]:
  """Returns the codes with which a port answers the methods.

  Args:
    address: 'IP:PORT'.
    token: '' for none.
    files: the authority, our key and our certificate; the first alone; or none
      for a call without TLS.
  """
  import grpc

  found = set()
  channel = grpc.insecure_channel(address)
  if files:
    channel = grpc.secure_channel(address, grpc.ssl_channel_credentials(*files))
  with channel:
    for method in METHODS:
      metadata = [('authorization', f'Bearer {token}')] if token else []
      try:
        channel.unary_unary(method)(b'', timeout=10, metadata=metadata)
        found.add('OK')
      except grpc.RpcError as e:
        found.add(e.code().name)
  return found


def _http(address: str, token: str) -> str:
  """Returns the status of an HTTP answer, or '' if there is none."""
  ip, port = address.split(':')
  header = f'Authorization: Bearer {token}\r\n' if token else ''
  with socket.create_connection((ip, int(port)), 10) as connection:
    connection.settimeout(10)
    connection.sendall(f'GET / HTTP/1.1\r\nHost: x\r\n{header}\r\n'.encode())
    try:
      answer = connection.recv(12).decode(errors='replace')
    except OSError:
      return ''
  return answer[9:] if answer.startswith('HTTP/1.1 ') else ''


def main(what: str, folder: str, ip: str = '') -> None:
  if what == 'ports':  # Of the whole host, drivers included.
    every = psutil.net_connections('inet')
    found = {c.laddr.port for c in every if c.status == 'LISTEN'}
  else:
    ports = json.loads(sys.stdin.readline())
    path = pathlib.Path(folder)
    found = [check(path, f'{ip}:{port}', tls=True) for port in ports]
  print(json.dumps(sorted(found)))


if __name__ == '__main__':
  main(*sys.argv[1:])
