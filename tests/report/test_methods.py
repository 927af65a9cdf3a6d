"""Names and colors of methods."""

import pytest

from tff_xc.algorithms import registry as algorithms
from tff_xc.report import methods


def test_every_algorithm_has_a_name_and_a_look_of_its_own():
  assert methods.METHODS.keys() == algorithms.ALGORITHMS.keys()
  for field in ('title', 'colour'):
    found = [getattr(m, field) for m in methods.METHODS.values()]
    assert len(set(found)) == len(found)


def test_a_method_has_one_look_and_its_variants_are_shades_of_it():
  alone = methods.styles(['fedss'])
  [first, *_] = methods.styles(['fedss', 'fullsoftmax', 'mine'])
  assert alone == [first]
  assert first['color'] == methods.colour('fedss') == '#D55E00'
  found = methods.styles(['fedss', 'fedavg', 'fedss', 'fedss'])
  dark, middle, light = (found[i] for i in (0, 2, 3))
  assert middle['color'] == '#D55E00'

  def bright(style):
    return sum(int(style['color'][i : i + 2], 16) for i in (1, 3, 5))

  assert bright(dark) < bright(middle) < bright(light)
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
