"""One's own files of sparse text, in the form of `xc.text` and of any size."""

import os
import pathlib

import numpy as np

from datasets.splits import hold_out
from datasets.xc import clients
from datasets.xc import text as xc_text
from tff_xc import errors

# A stream of numpy generators: [seed, stream].
_TEST = 2


def read(
  path: str | os.PathLike,
  test_file: str | os.PathLike = '',
  test_fraction: float = 0.0,
  seed: int = 0,
) -> tuple[clients.Part, clients.Part | None]:
  """Reads a training and a test part.

  Args:
    path: the training examples, a file `N D L`, `l1,l2 f:v f:v`, perhaps .gz.
    test_file: the test examples; empty: as `test_fraction` says.
    test_fraction: the share of the training examples that are taken for the
      test; 0: none.
    seed: of that draw.

  Returns:
    The training part, and the test part or None.

  Raises:
    errors.InputError: a file is missing or damaged; the files differ in D or L;
      there are fewer than two labels.
  """
  header = check(path)
  if test_file:
    found = check(test_file)
    if found[1:] != header[1:]:
      raise errors.InputError(
        f'{test_file} has {found.num_features:,} features and'
        f' {found.num_labels:,} labels, and {path} {header.num_features:,} and'
        f' {header.num_labels:,}; give two files of one set'
      )
    return _part(path), _part(test_file)
  train = _part(path)
  if not test_fraction:
    return train, None
  test = hold_out.by_fraction(train.labels, test_fraction, [seed, _TEST])
  held = np.zeros(train.labels.shape[0], bool)
  held[test] = True
  some = lambda rows: clients.Part(train.features[rows], train.labels[rows])
  return some(~held), some(held)


def check(path: str | os.PathLike) -> xc_text.Header:
  """Returns a file's header; raises `errors.InputError` if it will not do."""
  header = xc_text.read_header(path)
  if header.num_labels < 2:
    raise errors.InputError(
      f'{path}, line 1: {header.num_labels} labels; give a file with at least two'
    )
  if not (header.num_examples and header.num_features):
    raise errors.InputError(
      f'{path}, line 1: {header.num_examples} examples of {header.num_features}'
      ' features; give a file with some'
    )
  return header


def _part(path: str | os.PathLike) -> clients.Part:
  return clients.read((pathlib.Path(path),))
