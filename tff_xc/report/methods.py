"""The names, colors and markers that algorithms have in all pictures."""

import collections
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tff_xc.report import pictures


class Method(NamedTuple):
  """The name, color and marker of an algorithm in pictures."""

  title: str  # The algorithm's name in papers.
  colour: str
  marker: str


# Similar algorithms have similar colors. Blue: the server averages models. Green: the
# client's loss is changed. Yellow: client sampling is changed. Orange to brown: sampled
# classes. Purple: the server spreads class rows out. Color-blind readers can distinguish the
# colors of algorithms that papers compare. Six colors are from Okabe and Ito.
METHODS = {
  'fedavg': Method('FedAvg', '#0072B2', 'o'),
  'fedavgm': Method('FedAvgM', '#56B4E9', 's'),
  'fedadam': Method('FedAdam', '#3C1599', 'D'),
  'fedams': Method('FedAMS', '#0B425C', 'v'),
  'fedprox': Method('FedProx', '#55E982', '^'),
  'moon': Method('MOON', '#88C72A', 'P'),
  'feddyn': Method('FedDyn', '#5C7146', '<'),
  'scaffold': Method('SCAFFOLD', '#87F53D', '>'),
  'fednova': Method('FedNova', '#280DF2', '<'),
  'fedrs': Method('FedRS', '#608F47', 'o'),
  'fedlc': Method('FedLC', '#3AC36E', 's'),
  'fedbabu': Method('FedBABU', '#010152', 'X'),
  'fedrep': Method('FedRep', '#7F93F2', 'X'),
  'fedproto': Method('FedProto', '#6F10D1', 'X'),
  'fedvc': Method('FedVC', '#E69F00', 'D'),
  'fedir': Method('FedIR', '#A29C44', 'v'),
  'fedss': Method('FedSS', '#D55E00', 'D'),
  'negonly': Method('NegOnly', '#DAA197', 'v'),
  'posonly': Method('PosOnly', '#56340E', '^'),
  'fullsoftmax': Method('FullSoftmax', '#000000', 's'),
  'fedaws': Method('FedAwS', '#CC79A7', 'D'),
  'fedaws_baseline1': Method('Baseline-1', '#8264E7', 'v'),
  'fedaws_baseline2': Method('Baseline-2', '#8B097B', '^'),
  'fedaws_posonly': Method('FedAwS on PosOnly', '#A1319B', 'P'),
  'fedaws_softmax': Method('FedAwS with softmax', '#A16F86', '>'),
  'turbosvm': Method('TurboSVM-FL', '#B2182B', 's'),
  'fedmlh': Method('FedMLH', '#009E73', 's'),
  'centralized': Method('Centralized', '#585858', 'X'),
  'logit_adjustment': Method('Logit adjustment', '#312D2B', 'X'),
}
# Colors of algorithms that are not in `METHODS`, in alphabetical order of the algorithms.
_FREE = ('#B8860B', '#008B8B', '#8B4513', '#FF69B4', '#708090', '#6B8E23')
_LINES = ('-', '--', '-.', ':')
# The darkest shade of a color loses at most the share `_DARKEST` of the color's brightness,
# because very dark shades of different colors look alike. The lightest shade gains at most
# the share `_LIGHTEST` of the difference to white.
_DARKEST, _LIGHTEST = 0.5, 0.65


def title(algorithm: str) -> str:
  """Returns the display name of an algorithm, or `algorithm` itself if it has no such name."""
  return METHODS[algorithm].title if algorithm in METHODS else algorithm


def titles(algorithms: Sequence[str], labels: Sequence[str]) -> list[str]:
  """Returns the legend entries of methods with labels such as 'fedss negatives=5'.

  An entry is the algorithm's title, followed by the settings in which methods of this
  algorithm differ.
  """
  split = [re.split(r' (?=[^\s=]+=)', label) for label in labels]
  found = []
  for algorithm, (head, *words) in zip(algorithms, split, strict=True):
    others = [w for a, w in zip(algorithms, split, strict=True) if a == algorithm]
    told = [w for w in words if not all(w in other for other in others)]
    # A label may begin with the task's name, which the picture's title already contains.
    is_named = head.split(' ')[-1] == algorithm
    found.append(' '.join([title(algorithm) if is_named else head, *told]))
  return found


def styles(algorithms: Sequence[str]) -> list[dict[str, str]]:
  """Returns color, line style and marker for each method of a picture.

  Methods of one algorithm get shades of the algorithm's color, from dark to light, and
  different line styles.
  """
  shown = _shown(algorithms)
  number, seen = collections.Counter(algorithms), collections.Counter()
  found = []
  for algorithm in algorithms:
    method, place = shown[algorithm], seen[algorithm]
    seen[algorithm] += 1
    found.append(
      {
        'color': _shade(method.colour, place, number[algorithm]),
        'linestyle': _LINES[place % len(_LINES)],
        'marker': method.marker,
      }
    )
  return found


def colour(algorithm: str) -> str:
  """Returns an algorithm's color."""
  return _shown([algorithm])[algorithm].colour


def _shown(algorithms: Iterable[str]) -> dict[str, Method]:
  """Returns `METHODS` with entries for the other algorithms, which get colors of `_FREE`."""
  others = sorted({*algorithms} - METHODS.keys())
  return METHODS | {
    name: Method(name, _FREE[place % len(_FREE)], pictures.MARKERS[place % len(pictures.MARKERS)])
    for place, name in enumerate(others)
  }


def _shade(colour: str, place: int, number: int) -> str:
  """Returns shade `place` of `number` shades of a color."""
  if number == 1:
    return colour
  channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
  weights = 0.3, 0.59, 0.11  # The weights of red, green and blue in the brightness.
  bright = sum(w * c for w, c in zip(weights, channels, strict=True))
  # `step` goes from -1 for the darkest shade to 1 for the lightest shade. With two shades,
  # the first shade is the color itself.
  step = 2 * place / (number - 1) - 1 if number > 2 else place
  if step < 0:
    mixed = [c * (1 + _DARKEST * bright * step) for c in channels]
  else:
    mixed = [c + _LIGHTEST * (1 - bright) * step * (1 - c) for c in channels]
  return '#' + ''.join(f'{round(255 * c):02X}' for c in mixed)
