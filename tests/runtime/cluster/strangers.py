"""Calls every port of a cluster as a stranger would, who must be refused.

On the host where `launch.workers` has started nodes, for a table of the answers:
  python -m tests.runtime.cluster.strangers table FOLDER [FILE.csv]
On another host than the one that listens:
  python -m tests.runtime.cluster.strangers ports FOLDER    # prints them as JSON
  python -m tests.runtime.cluster.strangers call FOLDER IP  # reads them from stdin
FOLDER is that of `launch.workers` on the host itself.
"""

import csv
import json
import pathlib
import socket
import sys
from collections.abc import Mapping
from typing import NamedTuple

import psutil

from tff_xc.report import text_table
from tff_xc.runtime.cluster import connection
from tff_xc.runtime.cluster import state

# Who calls: the last one is a member of the cluster.
NO_TOKEN, WRONG_TOKEN = 'no token', 'a wrong token'
NO_TLS, NO_CERTIFICATE = 'the token, no TLS', 'the token, no certificate'
MEMBER = 'all of it'

METHODS = (
  '/ray.rpc.NodeInfoGcsService/GetClusterId',
  '/ray.rpc.NodeManagerService/GetResourceLoad',
  '/ray.rpc.ObjectManagerService/FreeObjects',
  '/ray.rpc.CoreWorkerService/GetCoreWorkerStats',
)
# Those of gRPC itself want a certificate where there is TLS, and no token.
OPEN_METHODS = (
  '/grpc.health.v1.Health/Check',
  '/grpc.channelz.v1.Channelz/GetServers',
)


class Port(NamedTuple):
  """What a port tells its callers."""

  kind: str
  told: Mapping[str, set[str]]


def listening(*started: state.Node):
  """Returns (process, address) where nodes listen; an address is (IP, port)."""
  return [
    (process.name(), connection.laddr)
    for process in state.marked([n.mark for n in started])
    for connection in process.net_connections('inet')
    if connection.status == 'LISTEN'
  ]


def call(folder: pathlib.Path, address: str, tls: bool) -> Port:
  """Calls 'IP:PORT' as members and strangers do."""
  token = (folder / 'token').read_text()
  tokens = {NO_TOKEN: '', WRONG_TOKEN: '0' * 64, MEMBER: token}
  if _http(address, ''):
    told = {who: {_http(address, given)} for who, given in tokens.items()}
    return Port('http', told)
  files = (
    [(folder / n).read_bytes() for n in connection._TLS_FILES] if tls else []
  )
  told = {who: _grpc(address, given, files) for who, given in tokens.items()}
  if tls:
    told[NO_TLS] = _grpc(address, token, [])
    # It knows the authority, and has no certificate of its own.
    told[NO_CERTIFICATE] = _grpc(address, token, files[:1])
  return Port('grpc', told)


def check(folder: pathlib.Path, address: str, tls: bool) -> str:
  """Asserts that a port refuses strangers; returns 'grpc' or 'http'."""
  kind, told = call(folder, address, tls)
  if kind == 'http':  # 404: the page, not the caller.
    expected = {NO_TOKEN: {'401'}, WRONG_TOKEN: {'403'}, MEMBER: {'404'}}
    assert told == expected, (address, told)
    return kind
  assert 'OK' in told[MEMBER], (address, told)
  for who in (NO_TOKEN, WRONG_TOKEN):
    assert told[who] <= {'UNAUTHENTICATED', 'UNIMPLEMENTED'}, (address, told)
    assert 'UNAUTHENTICATED' in told[who], (address, told)
  if tls:
    for who in (NO_TLS, NO_CERTIFICATE):
      assert told[who] == {'UNAVAILABLE'}, (address, told)
    authority = (folder / connection._TLS_FILES[0]).read_bytes()
    for files in ([], [authority]):
      found = _grpc(address, '', files, OPEN_METHODS)
      assert found == {'UNAVAILABLE'}, (address, found)
  return kind


def _grpc(
  address: str, token: str, files: list[bytes], methods=METHODS
) -> set[str]:
  """Returns the codes with which a port answers the methods."""
  import grpc

  found = set()
  channel = grpc.insecure_channel(address)
  if files:
    channel = grpc.secure_channel(address, grpc.ssl_channel_credentials(*files))
  with channel:
    for method in methods:
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


def table(folder: pathlib.Path) -> list[tuple[str, ...]]:
  """Returns a heading, and the answers of each port of this host's nodes."""
  cluster = state.find_cluster(folder)
  if cluster is None:
    raise SystemExit(f'{folder} has no cluster: launch.workers start')
  nodes = state.read_nodes(folder)
  found = {
    (name, f'{node.ip}:{address.port}')
    for node in nodes
    for name, address in listening(node)
  }
  callers = (NO_TOKEN, WRONG_TOKEN, NO_TLS, NO_CERTIFICATE, MEMBER)
  rows = [('process', 'address', 'kind', *callers)]
  for name, address in sorted(found):
    kind, told = call(folder, address, cluster.uses_tls)
    # A port has one of the methods; of the others it says so to members.
    codes = (
      ' '.join(sorted(told.get(who, set()) - {'UNIMPLEMENTED'})) or '–'
      for who in callers
    )
    rows.append((name, address, kind, *codes))
  return rows


def main(what: str, folder: str, last: str = '') -> None:
  path = pathlib.Path(folder)
  if what == 'table':
    rows = table(path)
    if last:
      with open(last, 'w', newline='', encoding='utf-8') as file:
        csv.writer(file, lineterminator='\n').writerows(rows)
    width = text_table.terminal_width()
    print(text_table.to_text(rows, range(len(rows[0])), width), end='')
    return
  if what == 'ports':  # Of the whole host, drivers included.
    every = psutil.net_connections('inet')
    found = {c.laddr.port for c in every if c.status == 'LISTEN'}
  else:
    ports = json.loads(sys.stdin.readline())
    found = [check(path, f'{last}:{port}', tls=True) for port in ports]
  print(json.dumps(sorted(found)))


if __name__ == '__main__':
  main(*sys.argv[1:])
