"""Certificates for clusters that listen beyond one machine.

A cluster has a certificate authority of its own. Whoever holds its key makes a
certificate for his machine's addresses; Ray's processes accept each other, and
drivers, only with such a certificate.
"""

import datetime
import ipaddress
import pathlib
from collections.abc import Iterable

from tff_xc import errors
from tff_xc.runtime.cluster import state

_DAYS = 3650


def make_authority() -> tuple[str, str]:
  """Returns a new authority's certificate and its key, in PEM."""
  from cryptography import x509
  from cryptography.hazmat.primitives import hashes
  from cryptography.hazmat.primitives.asymmetric import ec

  key = ec.generate_private_key(ec.SECP256R1())
  name = _name('tff_xc cluster')
  certificate = (
    _builder(name, name, key.public_key())
    .add_extension(x509.BasicConstraints(ca=True, path_length=0), True)
    .sign(key, hashes.SHA256())
  )
  return _pem(certificate), _key_pem(key)


def issue(
  authority: str, authority_key: str, ips: Iterable[str]
) -> tuple[str, str]:
  """Returns a certificate for some IP addresses and its key, in PEM."""
  from cryptography import x509
  from cryptography.hazmat.primitives import hashes
  from cryptography.hazmat.primitives import serialization
  from cryptography.hazmat.primitives.asymmetric import ec

  issuer = x509.load_pem_x509_certificate(authority.encode())
  issuer_key = serialization.load_pem_private_key(authority_key.encode(), None)
  key = ec.generate_private_key(ec.SECP256R1())
  names = [x509.IPAddress(ipaddress.ip_address(ip)) for ip in ips]
  certificate = (
    _builder(_name('tff_xc node'), issuer.subject, key.public_key())
    .add_extension(
      x509.SubjectAlternativeName([*names, x509.DNSName('localhost')]), False
    )
    .sign(issuer_key, hashes.SHA256())
  )
  return _pem(certificate), _key_pem(key)


def write(
  folder: pathlib.Path, cluster: state.Cluster, ips: Iterable[str]
) -> None:
  """Writes this machine's certificate, for its addresses, and its key."""
  from cryptography import exceptions

  try:
    certificate, key = issue(
      cluster.authority, cluster.authority_key, dict.fromkeys(ips)
    )
  except (ValueError, TypeError, exceptions.UnsupportedAlgorithm) as e:
    raise errors.InputError(
      f'the certificate authority of {state.JOIN} is damaged: copy the file anew'
      ' from the machine of the head'
    ) from e
  state.write_private(folder / 'key.pem', key)
  state.write_private(folder / 'certificate.pem', certificate)


def _name(text: str):
  from cryptography import x509

  return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])


def _builder(subject, issuer, public_key):
  """Returns a certificate to sign; a clock may be a day behind this one."""
  from cryptography import x509

  now = datetime.datetime.now(datetime.timezone.utc)
  return (
    x509.CertificateBuilder()
    .subject_name(subject)
    .issuer_name(issuer)
    .public_key(public_key)
    .serial_number(x509.random_serial_number())
    .not_valid_before(now - datetime.timedelta(days=1))
    .not_valid_after(now + datetime.timedelta(days=_DAYS))
  )


def _pem(certificate) -> str:
  from cryptography.hazmat.primitives import serialization

  return certificate.public_bytes(serialization.Encoding.PEM).decode()


def _key_pem(key) -> str:
  from cryptography.hazmat.primitives import serialization

  return key.private_bytes(
    serialization.Encoding.PEM,
    serialization.PrivateFormat.PKCS8,
    serialization.NoEncryption(),
  ).decode()
