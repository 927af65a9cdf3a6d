"""Versions of the packages and of the code, for the record of a run."""

import contextlib
import functools
import hashlib
import os
import pathlib
import platform
import subprocess
from importlib import metadata
from typing import Any

import tff_xc

_PACKAGES = (
  'tensorflow-cpu',
  'tensorflow',
  'tensorflow-federated',
  'numpy',
  'pillow',
  'scikit-learn',
)
# Of this repository, what a client's numbers depend on.
_PROGRAM = ('tff_xc', 'tasks', 'datasets')


def describe() -> dict[str, Any]:
  """Returns `versions` by package, and `git_revision`, None outside git."""
  versions = {'python': platform.python_version(), **_packages()}
  # Other kernels give other last digits.
  versions[tff_xc.ONEDNN] = os.environ.get(tff_xc.ONEDNN, '')
  return {'versions': versions, 'git_revision': _git_revision()}


@functools.cache  # As for `_git_revision`.
def _packages() -> dict[str, str]:
  versions = {}
  for package in _PACKAGES:
    with contextlib.suppress(metadata.PackageNotFoundError):
      versions[package] = metadata.version(package)
  return versions


@functools.cache  # What is edited later has perhaps been imported before.
def sources() -> dict[str, str]:
  """Returns a checksum of the source files by package of this repository.

  Without its `tasks`, a package called `datasets` is another one.
  """
  root = pathlib.Path(tff_xc.__file__).parents[1]
  whole = (root / 'tasks' / 'experiment.py').exists()
  return {n: _checksum(root / n) for n in (_PROGRAM if whole else _PROGRAM[:1])}


def _checksum(folder: pathlib.Path) -> str:
  found = hashlib.blake2b(digest_size=8)
  for name, file in sorted(
    (file.relative_to(folder).as_posix(), file)
    for file in folder.rglob('*.py')
    if not file.name.startswith('.')  # An editor's, or of another system.
  ):
    content = file.read_bytes()
    found.update(f'{name}\0{len(content)}\0'.encode() + content)
  return found.hexdigest()


@functools.cache  # A table of many runs asks for each of them.
def _git_revision() -> str | None:
  try:
    found = subprocess.run(
      ['git', 'describe', '--always', '--dirty', '--abbrev=12'],
      cwd=os.path.dirname(os.path.abspath(__file__)),
      capture_output=True,
      text=True,
      timeout=10,
      check=False,
    )
  except OSError:
    return None
  return found.stdout.strip() or None
