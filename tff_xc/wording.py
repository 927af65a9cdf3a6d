"""Formats text for people: plurals, numbers with units, and names from users' data."""

import difflib
import unicodedata
from collections.abc import Iterable, Mapping

# Maps other common names of flags, without underscores, to the flags of this project.
_SYNONYMS = {
  'alpha': 'concentration',
  'clientlr': 'client_learning_rate',
  'cohortsize': 'clients_per_round',
  'dataset': 'task',
  'learningrate': 'client_learning_rate',
  'lr': 'client_learning_rate',
  'method': 'algorithm',
  'mu': 'prox_mu',
  'numepochs': 'local_epochs',
  'numrounds': 'rounds',
  'output': 'run_dir',
  'outputdir': 'run_dir',
  'rundir': 'output',
  'serverlr': 'server_learning_rate',
}
# Unicode categories: control and format characters, surrogates, and line separators.
_HIDDEN = ('Cc', 'Cf', 'Cs', 'Zl', 'Zp')
# Persian and Indian words and emoji need these format characters.
_JOINERS = '\u200c\u200d'


def count(number: int, what: str) -> str:
  """Returns a number and its noun: `1 class`, `2,000 classes`."""
  plural = 'es' if what.endswith('s') else 's'
  return f'{number:,} {what}{"" if number == 1 else plural}'


def human_bytes(size: float) -> str:
  """Returns `size` in bytes with three digits and a decimal unit: '1.09 MB'."""
  for unit in ('B', 'kB', 'MB', 'GB', 'TB'):
    # A number of 999.5 or more would print as 1000.
    if abs(size) < 999.5 or unit == 'TB':
      break
    size /= 1000
  digits = 0 if unit == 'B' or abs(size) >= 99.95 else 1
  digits = 2 if unit != 'B' and abs(size) < 9.995 else digits
  return f'{size:.{digits}f} {unit}'


def human_duration(seconds: float) -> str:
  """Returns a duration with its largest units: '45 s', '12 min', '3 h 20 min'."""
  minutes = round(seconds / 60)
  if seconds < 99.5:
    return f'{seconds:.0f} s'
  if minutes < 100:
    return f'{minutes} min'
  if minutes < 48 * 60:
    return f'{minutes // 60} h {minutes % 60} min'
  hours = round(minutes / 60)
  return f'{hours // 24} d {hours % 24} h'


def shown(text: object) -> str:
  """Returns a text in one line; control characters become escapes such as `\\x1b`."""
  text = str(text)
  if text.isprintable():  # Most texts are, and to look at each character is slow.
    return text
  return ''.join(
    character
    if character in _JOINERS or unicodedata.category(character) not in _HIDDEN
    else character.encode('unicode_escape').decode()
    for character in text
  )


def baselines(found: Mapping[str, Mapping[str, float]]) -> list[str]:
  """Returns a line for each method that needs no training, with the method's scores."""
  lines = []
  for name, scores in found.items():
    each = [f'{score} {100 * value:.1f} %' for score, value in scores.items()]
    lines.append(f'{name}: {", ".join(each)}')
  return lines


def meant(name: str, known: Iterable[str], sign: str = '') -> str:
  """Returns '; did you mean NAME?' for an unknown name, or '' if no known name is similar.

  `sign` precedes the suggested name, such as '--' for a flag.
  """

  def plain(text):
    return text.lower().replace('_', '').replace('-', '')

  by_plain = {plain(one): one for one in known}
  written = plain(name)
  found = _SYNONYMS.get(written)
  if found not in by_plain.values():
    near = difflib.get_close_matches(written, by_plain, 1, 0.7)
    found = by_plain[near[0]] if near else None
  return f'; did you mean {sign}{found}?' if found else ''
