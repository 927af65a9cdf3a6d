"""Certificates are accepted by their own cluster only, at their addresses."""

import contextlib
import socket
import ssl
import stat
import threading

import pytest

from tests.runtime.cluster import folders
from tff_xc import errors
from tff_xc.runtime.cluster import certificates


def _context(folder, purpose):
  """Returns a TLS side that shows its certificate and wants the other's."""
  context = ssl.SSLContext(purpose)
  context.load_cert_chain(folder / 'certificate.pem', folder / 'key.pem')
  context.load_verify_locations(folder / 'authority.pem')
  context.verify_mode = ssl.CERT_REQUIRED
  return context


def _machine(folder, authority, ips=('127.0.0.1',)):
  folder.mkdir()
  certificate, key = authority
  cluster = folders.cluster(authority=certificate, authority_key=key)
  (folder / 'authority.pem').write_text(certificate)
  certificates.write(folder, cluster, ips)
  return folder


def _talk(server, client):
  """Sends a byte over mutual TLS on 127.0.0.1; returns what arrived."""
  found = []

  def serve(listener):
    with contextlib.suppress(OSError):
      side, _ = listener.accept()
      side.settimeout(10)
      context = _context(server, ssl.PROTOCOL_TLS_SERVER)
      with context.wrap_socket(side, server_side=True) as connection:
        found.append(connection.recv(1))
        connection.sendall(b'y')

  with socket.create_server(('127.0.0.1', 0)) as listener:
    thread = threading.Thread(target=serve, args=[listener])
    thread.start()
    try:
      context = _context(client, ssl.PROTOCOL_TLS_CLIENT)
      with (
        socket.create_connection(listener.getsockname(), 10) as raw,
        context.wrap_socket(raw, server_hostname='127.0.0.1') as connection,
      ):
        connection.sendall(b'x')
        connection.recv(1)
    finally:
      thread.join(10)
  return found


def test_machines_of_a_cluster_accept_each_other_and_nobody_else(tmp_path):
  ours, others = certificates.make_authority(), certificates.make_authority()
  one = _machine(tmp_path / 'one', ours)
  two = _machine(tmp_path / 'two', ours)
  elsewhere = _machine(tmp_path / 'elsewhere', ours, ['10.0.0.1'])
  stranger = _machine(tmp_path / 'stranger', others)
  liar = _machine(tmp_path / 'liar', others)
  (liar / 'authority.pem').write_text(ours[0])
  assert _talk(one, two) == [b'x']
  for server, client in ((stranger, one), (elsewhere, one)):
    with pytest.raises(ssl.SSLCertVerificationError):
      _talk(server, client)
  with pytest.raises(OSError):
    assert _talk(one, liar) == []
    raise ConnectionError  # A refused client may read an empty answer.


def test_a_damaged_authority_is_one_sentence(tmp_path):
  certificate, key = certificates.make_authority()
  # Of the right form, but not a certificate or a key.
  other = '-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n'
  for number, authority in enumerate(
    [(other, key), (certificate, other), (certificate, ''), (key, certificate)]
  ):
    with pytest.raises(errors.InputError, match='damaged: copy the file anew'):
      _machine(tmp_path / str(number), authority)
    assert not (tmp_path / str(number) / 'key.pem').exists()


def test_the_key_is_for_the_user_only(tmp_path):
  one = _machine(tmp_path / 'one', certificates.make_authority())
  assert stat.S_IMODE((one / 'key.pem').stat().st_mode) == 0o600
