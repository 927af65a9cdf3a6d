"""The published files of splits, known by their checksums."""

import hashlib
import os
import pathlib

# By MD5: what the file is called, and what it has.
FILES = {
  '53c36bd7d5fc12f927af2820b7e4a57c': (
    'landmarks-user-160k.zip',
    'Landmarks-User-160k of Hsu, Qi and Brown',
  ),
  '9fd62cf79a67046fdd673d3a0ac52841': (
    'mini_gld_train_split.csv',
    "the training part of TFF's gld23k",
  ),
  '298e9d19d66357236f66fe8e22920933': (
    'mini_gld_test.csv',
    "the test part of TFF's gld23k",
  ),
  '63d5a41699434bc2b13f5853f3764c18': (
    'iNaturalist_train.csv',
    "the training part of TFF's iNaturalist",
  ),
  'bcf08a5a740ee76dac4e5af668081891': (
    'iNaturalist_test.csv',
    "the test part of TFF's iNaturalist",
  ),
}


def md5(path: str | os.PathLike) -> str:
  """Returns the MD5 of a file's bytes, in hexadecimal digits."""
  found = hashlib.md5(usedforsecurity=False)
  with open(path, 'rb') as file:
    while block := file.read(2**20):
      found.update(block)
  return found.hexdigest()


def note(path: str | os.PathLike) -> str | None:
  """Returns whether a file is a published one, in one line.

  None: neither its content nor its name is that of one, or it is no file.
  """
  path = pathlib.Path(path)
  if not path.is_file():
    return None
  names = {name: (digest, what) for digest, (name, what) in FILES.items()}
  found = md5(path)
  if found in FILES:
    return f'{path} is {FILES[found][1]}, as published (md5 {found})'
  if path.name in names:
    digest, what = names[path.name]
    return (
      f'{path} is named as {what}, and is another file: its md5 is {found}, that'
      f' of the published one {digest}'
    )
  return None
