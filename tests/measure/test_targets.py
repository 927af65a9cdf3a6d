"""Targets: what is accepted, and the first round that reaches one."""

import pandas as pd
import pytest

from tff_xc import errors
from tff_xc.measure import catalog
from tff_xc.measure import targets

METRICS = pd.DataFrame(
  {
    'round': [0.0, 1.0, 2.0, 3.0, 4.0],
    'top1': [0.1, float('nan'), 0.7, float('nan'), 0.6],
    'mcc': [float('nan')] * 5,
  }
)


def test_targets_are_read_and_written():
  found = targets.parse('top1:0.70, mcc:-.5,map@10:1e-3,top1:0.7')
  assert [t.name for t in found] == ['top1:0.7', 'mcc:-0.5', 'map@10:0.001']
  assert found[0].heading == 'rounds to top-1 70 %'
  assert found[2].heading == 'rounds to MAP@10 0.1 %'
  distance = targets.Target('class_distance_min', 1.25)
  assert distance.heading == 'rounds to least class distance 1.25'
  assert targets.parse('') == targets.parse(' ') == ()


@pytest.mark.parametrize(
  ('text', 'message'),
  [
    ('top1', 'not of the form METRIC:VALUE'),
    ('top1:', 'not of the form'),
    ('top1:x', 'not of the form'),
    ('top1:nan', 'not of the form'),
    ('top1:inf', 'not of the form'),
    ('top1:0.7,', "target '' is not"),
    (':0.7', "':0.7' names no metric; there are top1, mcc$"),
    ('loss:0.7', 'names no metric'),
    ('p@1:0.7', "'p@1:0.7' is of a metric that is not measured here; measured"),
    ('top1:70', 'above 1; write a fraction, such as top1:0.7 for 70 %'),
    ('mcc:-2', 'below -1; write a fraction, such as mcc:-0.02 for -2 %'),
  ],
)
def test_what_is_no_target_is_refused(text, message):
  with pytest.raises(errors.InputError, match=message):
    targets.parse(text, ('top1', 'mcc'))


def test_the_first_evaluated_round_counts(monkeypatch):
  first = lambda text: targets.parse(text)[0].first_round(METRICS)
  assert first('top1:0.7') == 2
  assert first('top1:0.65') == 2
  assert first('top1:0.05') == 0
  assert first('top1:0.71') is None
  assert first('mcc:-1') is None  # It was never measured.
  lower = catalog.SCORES['top1']._replace(better='lower')
  monkeypatch.setitem(catalog.SCORES, 'top1', lower)
  assert first('top1:0.6') == 0
  assert first('top1:0.05') is None
