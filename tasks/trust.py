"""Whether this user has named what a run directory names.

Training signs the paths of a run's config.json with a key that only this user can
read. A directory that somebody else made, or edited, has no such signature: what it
names outside of itself is not opened before the user names it.
"""

import contextlib
import hashlib
import hmac
import json
import os
import pathlib
import secrets
from collections.abc import Mapping
from typing import Any

from tff_xc.report import run_files

# Settings of a run that may name files, and code.
NAMED = ('data_dir', 'split', 'test_file', 'encoder')
SIGNATURE = 'signature'


def signature(config: Mapping[str, Any]) -> str:
  """Returns what to keep in config.json; '' if no key can be read or made."""
  file = _file()
  if not file.exists():
    with contextlib.suppress(OSError):
      _make_key(file)
  return _signed(config)


def _make_key(file: pathlib.Path) -> None:
  """Makes the whole file at once; a key that another process made meanwhile stays."""
  file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
  made = file.with_name(f'key.{os.getpid()}')
  made.touch(0o600)
  try:
    made.write_text(secrets.token_hex(32))
    os.link(made, file)
  finally:
    made.unlink()


def is_signed(config: Mapping[str, Any]) -> bool:
  """Whether a config.json has this user's signature of what it names."""
  expected = _signed(config)
  found = str(config.get(SIGNATURE, ''))
  return bool(expected) and hmac.compare_digest(found, expected)


def _signed(config: Mapping[str, Any]) -> str:
  try:
    key = _file().read_bytes()
  except OSError:
    return ''
  flat = run_files.flat(config)
  text = json.dumps([flat.get(name, '') for name in NAMED])
  return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def _file() -> pathlib.Path:
  state = os.environ.get('XDG_STATE_HOME') or os.path.join(
    '~', '.local', 'state'
  )
  return pathlib.Path(state).expanduser() / 'tff_xc' / 'key'
