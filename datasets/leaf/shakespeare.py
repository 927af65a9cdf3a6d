"""Shakespeare: next-character prediction, with the speaking roles of plays as clients.

An example is 80 successive characters of a role, and the label is the next character.
LEAF's data set has 1,129 roles and 4,226,158 examples. The module reads LEAF's JSON, or
makes the data set from Project Gutenberg's text. Both ways give equally many roles and
examples.

LEAF makes its data set from Project Gutenberg's etext 100 in the version before 2018
(`pg100.txt`), with one user for each speaking role of each play. This module follows LEAF's
preprocess_shakespeare.py with a later fix, which converts speakers' names to upper case. (A
still later version of LEAF makes windows line by line. In the published data set, all lines
of a user form one text.)
"""

import itertools
import os
import pathlib
import re
from collections.abc import Iterable, Iterator

import numpy as np
import tensorflow as tf

from datasets import examples as examples_lib
from datasets.leaf import files as leaf_files, users as leaf_users
from datasets.readers import parsed_cache, zipped
from tff_xc import errors, wording
from tff_xc.data import pool

# The 80 symbols of TurboSVM-FL, in the order of their codes.
ALPHABET = ' !"&\'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz{}'
NUM_CLASSES = len(ALPHABET)
WINDOW = 80
# Increase this when the cached arrays or the parsing of plays change.
VERSION = 3

_UNKNOWN = 255
_CODES = np.full(128, _UNKNOWN, np.uint8)
_CODES[np.frombuffer(ALPHABET.encode(), np.uint8)] = np.arange(NUM_CLASSES)

_AUTHOR = 'by William Shakespeare'
# The last line of the plays, counted from 0 after the file's first line. Poems come next.
_LAST_LINE = 124_195
_SPEAKER = re.compile(r'  ([a-zA-Z][a-zA-Z ]*)\. (.*)')
_MORE = re.compile(r'    (.*)')
# The lines of this play are indented less than the lines of other plays.
_FLAT_PLAY = 'THE COMEDY OF ERRORS'
_FLAT_SPEAKER = re.compile(r'([a-zA-Z][a-zA-Z ]*)\. (.*)')
_FLAT_MORE = re.compile(r'(.*)')
# Roles with at most this many lines are left out.
_FEW_LINES = 2


def read(data_dir: str | os.PathLike) -> tuple[pool.Pool, leaf_users.Users]:
  """Reads LEAF's JSON or the plays. Examples are memory-mapped from the cache.

  Characters outside the alphabet become spaces, and the function prints their number on
  stderr. (LEAF gives these characters the code -1, which is not a class.)
  """
  found = leaf_files.find_shakespeare(data_dir)
  if isinstance(found, leaf_files.Files):
    arrays = leaf_users.read_json(data_dir, found, 'shakespeare', _parse)
    _say_unknown('shakespeare', arrays)
    windows = _pool(arrays['y'], lambda rows: arrays['x'][rows])
    return windows, leaf_users.of_arrays(arrays)
  return from_texts('shakespeare', [found], lambda: read_plays(found).items())


def encode(text: str) -> tuple[np.ndarray, int]:
  """Returns a text's codes, uint8 [k], and the number of characters that became spaces."""
  points = np.frombuffer(text.encode('utf-32-le', 'surrogatepass'), np.uint32)
  codes = _CODES[np.minimum(points, 127)]  # 127 is not in the alphabet.
  unknown = codes == _UNKNOWN
  codes[unknown] = ALPHABET.index(' ')
  return codes, np.count_nonzero(unknown)


def blocks(path: str | os.PathLike, description, size: int) -> Iterator[examples_lib.Block]:
  """Yields the last characters of each line. A trained model predicts the next character.

  As in training, a run of spaces becomes one space. A short line is padded with spaces at
  its start.
  """
  [length] = description.shape
  lines = enumerate(zipped.text_lines(path, 'give a text file in UTF-8'), 1)
  kept = ((number, line.rstrip('\r\n')) for number, line in lines if line.strip())
  while block := list(itertools.islice(kept, size)):
    last = [re.sub('  +', ' ', line)[-length:].rjust(length) for _, line in block]
    # All characters outside ASCII get the code 127, which is in no alphabet.
    codes = [[min(ord(c), 127) for c in line] for line in last]
    names = [str(number) for number, _ in block]
    yield examples_lib.Block(names, (np.array(codes, np.uint8),), None)


def from_texts(form: str, files: list[pathlib.Path], read) -> tuple[pool.Pool, leaf_users.Users]:
  """Makes windows of 80 characters from texts; returns the windows and their users.

  `read` returns pairs of a user and the user's text. Each newline and each run of spaces
  becomes one space. Users with at most 80 characters are left out. The texts are cached
  under the name of the first file.
  """
  arrays = parsed_cache.of_files(files[0], form, VERSION, files, lambda: _encoded(read(), files[0]))
  _say_unknown(form, arrays)
  users = leaf_users.of_arrays(arrays)
  codes, lengths = arrays['codes'], users.sizes + WINDOW
  text_starts = np.cumsum(lengths) - lengths
  ends = [
    codes[start + WINDOW : start + WINDOW + size]
    for start, size in zip(text_starts, users.sizes, strict=True)
  ]
  windows = np.lib.stride_tricks.sliding_window_view(codes, WINDOW)

  def windows_of(numbers: np.ndarray) -> np.ndarray:
    user = np.searchsorted(users.starts, numbers, 'right') - 1
    return windows[text_starts[user] + numbers - users.starts[user]]

  return _pool(np.concatenate(ends), windows_of), users


def _encoded(texts: Iterable[tuple[str, str]], file) -> dict[str, np.ndarray]:
  """Encodes texts; returns the arrays that `from_texts` caches."""
  found, unknown = {}, 0
  for name, text in texts:
    codes, some = encode(re.sub('  +', ' ', text.replace('\n', ' ')))
    if len(codes) > WINDOW:
      found[name] = codes
      unknown += some
  sizes = [len(codes) - WINDOW for codes in found.values()]
  fields = leaf_users.put(file, list(found), sizes)
  return {**fields, 'codes': np.concatenate(list(found.values())), 'unknown': np.array([unknown])}


def _pool(y: np.ndarray, read) -> pool.Pool:
  spec = tf.TensorSpec([WINDOW], tf.uint8)
  return pool.Pool(y.astype(np.int32), spec, read)


def _parse(x: list, y: list, where: str) -> dict[str, np.ndarray]:
  for what, values, length in (('x has', x, WINDOW), ('y has', y, 1)):
    for value in values:
      if type(value) is not str or len(value) != length:
        expected = f'a string of {wording.count(length, "character")}'
        leaf_users.refuse(where, what, value, expected)
  codes, unknown = encode(''.join(x))
  labels, more = encode(''.join(y))
  return {
    'x': codes.reshape(-1, WINDOW),
    'y': labels,
    'unknown': np.array([unknown + more], np.int64),
  }


def _say_unknown(name: str, arrays) -> None:
  if count := int(arrays['unknown'].sum()):
    leaf_users.say(
      f'{name}: {wording.count(count, "character")} outside the alphabet, read as spaces'
    )


def read_plays(path: str | os.PathLike) -> dict[str, str]:
  """Reads the plays; returns the text of each role, with the key `PLAY_SPEAKER`.

  The text of a role is all its lines, with newlines. Roles are sorted by play, and then by
  their first line.
  """
  advice = 'get pg100.txt of Project Gutenberg again'
  with zipped.readable(path, advice), zipped.open_text(path) as file:
    text = file.read()
  found = roles(text)
  if not found:
    raise errors.InputError(
      f'{path}: no play with two speakers; get etext 100 of Project Gutenberg in '
      'its edition of 1994 (pg100.txt), whose plays each begin with the line '
      f'{_AUTHOR!r}'
    )
  return found


def roles(text: str) -> dict[str, str]:
  """Returns the text of each role in the given plays; see `read_plays`."""
  found: dict[str, list[str]] = {}
  for play, speakers in _plays(text.splitlines()[1:]):
    if len(speakers) < 2:
      continue  # This is a poem or a table of contents.
    for speaker, lines in speakers.items():
      if len(lines) > _FEW_LINES:
        role = re.sub(r'\W+', '_', f'{play}_{speaker}'.replace(' ', '_'))
        found.setdefault(role, []).extend(lines)
  return {role: ''.join(f'{line}\n' for line in lines) for role, lines in found.items()}


def _plays(lines: list[str]):
  """Yields the title of each play, and its speakers with their lines."""
  begins = [i for i, line in enumerate(lines) if _AUTHOR in line]
  begins = [i for i in begins[1:] if i <= _LAST_LINE]
  for begin, end in itertools.pairwise([*begins, _LAST_LINE + 1]):
    # The title is the nearest line above `_AUTHOR` that is not blank.
    above = (lines[begin - k].strip() for k in range(2, 8) if k <= begin)
    title = next(filter(None, above), '')
    yield title, _speakers(lines[begin + 1 : end], title == _FLAT_PLAY)


def _speakers(lines: list[str], flat: bool) -> dict[str, list[str]]:
  """Returns the lines of each speaker of a play; `flat` is true for `_FLAT_PLAY`."""
  begin, more = (_FLAT_SPEAKER, _FLAT_MORE) if flat else (_SPEAKER, _MORE)
  speakers: dict[str, list[str]] = {}
  current = None
  for line in lines:
    if match := begin.match(line):
      name = match[1].upper()
      # In `_FLAT_PLAY`, the headings of acts look like speakers.
      current = None if flat and name.startswith('ACT ') else name
      if current:
        speakers.setdefault(current, []).append(match[2])
    elif current and (match := more.match(line)):
      if flat and match[1].startswith('<'):
        current = None
      else:
        speakers[current].append(match[1])
  return speakers
