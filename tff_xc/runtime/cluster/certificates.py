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

  limits = x509.BasicConstraints(ca=True, path_length=0)
  return _issued('tff_xc cluster', None, None, limits, True)


def write(
  folder: pathlib.Path, cluster: state.Cluster, ips: Iterable[str]
) -> None:
  """Writes this machine's certificate, for its addresses, and its key."""
  from cryptography import exceptions
  from cryptography import x509
  from cryptography.hazmat.primitives import serialization

  try:
    authority = x509.load_pem_x509_certificate(cluster.authority.encode())
    authority_key = serialization.load_pem_private_key(
      cluster.authority_key.encode(), None
    )
    names = [
      x509.IPAddress(ipaddress.ip_address(ip)) for ip in dict.fromkeys(ips)
    ]
    names = x509.SubjectAlternativeName([*names, x509.DNSName('localhost')])
    certificate, key = _issued(
      'tff_xc node', authority.subject, authority_key, names, False
    )
  except (ValueError, TypeError, exceptions.UnsupportedAlgorithm) as e:
    raise errors.InputError(
      f'the certificate authority of {state.JOIN} is damaged: copy the file anew'
      ' from the machine of the head'
    ) from e
  state.write_private(folder / 'key.pem', key)
  state.write_private(folder / 'certificate.pem', certificate)


def _issued(name: str, issuer, issuer_key, extension, is_critical: bool):
  """Returns a certificate and its key in PEM; without an issuer it is its own."""
  from cryptography import x509
  from cryptography.hazmat.primitives import hashes
  from cryptography.hazmat.primitives import serialization
  from cryptography.hazmat.primitives.asymmetric import ec

  key = ec.generate_private_key(ec.SECP256R1())
  subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
  now = datetime.datetime.now(datetime.timezone.utc)
  certificate = (
    x509.CertificateBuilder()
    .subject_name(subject)
    .issuer_name(issuer or subject)
    .public_key(key.public_key())
    .serial_number(x509.random_serial_number())
    # The clock of another machine may be a day behind this one's.
    .not_valid_before(now - datetime.timedelta(days=1))
    .not_valid_after(now + datetime.timedelta(days=_DAYS))
    .add_extension(extension, is_critical)
    .sign(issuer_key or key, hashes.SHA256())
  )
  pem = serialization.Encoding.PEM
  private = key.private_bytes(
    pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
  )
  return certificate.public_bytes(pem).decode(), private.decode()
