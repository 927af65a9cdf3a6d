"""Versions of the packages and of the code, for the record of a run."""

import functools
import os
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
  'scikit-learn',
)


def describe() -> dict[str, Any]:
  """Returns `versions` by package, and `git_revision`, None outside git."""
  # Other kernels give other last digits.
  versions = {**_versions(), tff_xc.ONEDNN: os.environ.get(tff_xc.ONEDNN, '')}
  return {'versions': versions, 'git_revision': _git_revision()}


@functools.cache
def _versions() -> dict[str, str]:
  versions = {'python': platform.python_version()}
  for package in _PACKAGES:
    try:
      versions[package] = metadata.version(package)
    except metadata.PackageNotFoundError:
      continue
  return versions


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
