"""Versions of the packages and the code, which a run stores in its config.json."""

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
# The packages of this repository that affect a client's results.
_PROGRAM = ('tff_xc', 'tasks', 'datasets')


def describe() -> dict[str, Any]:
  """Returns `versions` by package, and `git_revision`, which is None outside git."""
  versions = {'python': platform.python_version(), **_packages()}
  # Different kernels change the last digits of results.
  versions[tff_xc.ONEDNN] = os.environ.get(tff_xc.ONEDNN, '')
  return {'versions': versions, 'git_revision': _git_revision()}


@functools.cache  # A table of many runs calls this for each run.
def _packages() -> dict[str, str]:
  versions = {}
  for package in _PACKAGES:
    with contextlib.suppress(metadata.PackageNotFoundError):
      versions[package] = metadata.version(package)
  return versions


@functools.cache  # If a file changes later, the imported module stays the same.
def sources() -> dict[str, str]:
  """Returns a checksum of the source files of each package of this repository.

  Without this repository's `tasks`, only `tff_xc` has a checksum, because a package called
  `datasets` may then come from another project.
  """
  root = pathlib.Path(tff_xc.__file__).parents[1]
  whole = (root / 'tasks' / 'experiment.py').exists()
  return {n: _checksum(root / n) for n in (_PROGRAM if whole else _PROGRAM[:1])}


def _checksum(folder: pathlib.Path) -> str:
  found = hashlib.blake2b(digest_size=8)
  for name, file in sorted(
    (file.relative_to(folder).as_posix(), file)
    for file in folder.rglob('*.py')
    if not file.name.startswith('.')  # Editors and operating systems make hidden files.
  ):
    content = file.read_bytes()
    found.update(f'{name}\0{len(content)}\0'.encode() + content)
  return found.hexdigest()


@functools.cache  # A table of many runs calls this for each run.
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
  except (OSError, subprocess.TimeoutExpired):
    return None
  return found.stdout.strip() or None
