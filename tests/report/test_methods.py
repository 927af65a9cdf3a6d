"""Names and colours of methods."""

import itertools

import numpy as np
import pytest

from tasks.papers import registry as papers
from tff_xc.algorithms import registry as algorithms
from tff_xc.report import methods

# Machado, Oliveira and Fernandes (2009), severity 1, of linear RGB.
_SEEN_BY = {
  'all': np.eye(3),
  'protanopes': [
    [0.152286, 1.052583, -0.204868],
    [0.114503, 0.786281, 0.099216],
    [-0.003882, -0.048116, 1.051998],
  ],
  'deuteranopes': [
    [0.367322, 0.860646, -0.227968],
    [0.280085, 0.672501, 0.047413],
    [-0.011820, 0.042940, 0.968881],
  ],
  'tritanopes': [
    [1.255528, -0.076749, -0.178779],
    [-0.078411, 0.930809, 0.147602],
    [0.004733, 0.691367, 0.303900],
  ],
}
# Linear RGB to CIE XYZ (D65), and its white.
_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])


def lab(colour, seen_by):
  """Returns CIE L*a*b*, in which distances below about 2 are not seen."""
  channels = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
  linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
  xyz = _XYZ @ np.clip(np.array(_SEEN_BY[seen_by]) @ linear, 0, 1) / _XYZ.sum(1)
  f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
  return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def apart(one, other):
  return min(np.linalg.norm(lab(one, seen_by) - lab(other, seen_by)) for seen_by in _SEEN_BY)


def test_every_algorithm_has_a_name_and_a_look_of_its_own():
  assert methods.METHODS.keys() == algorithms.ALGORITHMS.keys()
  for field in ('title', 'colour'):
    found = [getattr(m, field) for m in methods.METHODS.values()]
    assert len(set(found)) == len(found)


def test_colour_blind_readers_tell_apart_what_papers_compare():
  pairs = {
    pair
    for table in papers.TABLES.values()
    for scale in ('small', 'paper')
    if table.form(scale)
    for task in {row.task for row in table.form(scale).rows}
    for pair in itertools.combinations(
      sorted({r.algorithm for r in table.form(scale).rows if r.task == task}), 2
    )
  }
  assert ('fedss', 'fullsoftmax') in pairs
  assert len(pairs) > 40
  colours = {name: method.colour for name, method in methods.METHODS.items()}
  for one, other in pairs:
    assert apart(colours[one], colours[other]) > 15, (one, other)
  for one, other in itertools.combinations(colours, 2):
    assert apart(colours[one], colours[other]) > 9, (one, other)
  # On white paper.
  assert all(apart(each, '#FFFFFF') > 30 for each in colours.values())


def test_a_method_has_one_look_and_its_variants_are_shades_of_it():
  alone = methods.styles(['fedss'])
  [first, *_] = methods.styles(['fedss', 'fullsoftmax', 'mine'])
  assert alone == [first]
  assert first['color'] == methods.colour('fedss') == '#D55E00'
  found = methods.styles(['fedss', 'fedavg', 'fedss', 'fedss'])
  dark, middle, light = (found[i] for i in (0, 2, 3))
  assert middle['color'] == '#D55E00'

  def bright(style):
    return lab(style['color'], 'all')[0]

  assert bright(dark) + 5 < bright(middle) < bright(light) - 5
  assert len({style['linestyle'] for style in (dark, middle, light)}) == 3
  assert {style['marker'] for style in (dark, middle, light)} == {'D'}
  assert len({s['color'] for s in methods.styles(['fedavg'] * 12)}) == 12


def test_an_algorithm_of_ones_own_gets_a_free_colour():
  one, two = methods.styles(['b_own', 'a_own'])
  assert methods.styles(['a_own', 'fedss', 'b_own'])[::2] == [two, one]
  taken = {method.colour for method in methods.METHODS.values()}
  assert one['color'] != two['color']
  assert not taken & {one['color'], two['color']}
  assert methods.title('a_own') == 'a_own'


@pytest.mark.parametrize(
  'algorithm, label, told',
  [
    (['fedss'], ['fedss negatives=8'], ['FedSS']),
    (['turbosvm', 'fedavg'], ['turbosvm', 'fedavg'], ['TurboSVM-FL', 'FedAvg']),
    (
      ['fedss', 'fedss', 'posonly'],
      ['omniglot fedss m=1 by=a b', 'omniglot fedss m=2 by=a b', 'posonly by=c'],
      ['FedSS m=1', 'FedSS m=2', 'PosOnly'],
    ),
    (['fedss'], ['what I call it'], ['what I call it']),
  ],
)
def test_a_legend_says_what_tells_methods_apart(algorithm, label, told):
  assert methods.titles(algorithm, label) == told
