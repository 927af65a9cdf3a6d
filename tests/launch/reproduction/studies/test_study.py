"""The verdict on a study's values."""

import types

import pytest

from launch.reproduction import outcome
from launch.reproduction.studies import study
from tasks.papers import result

VERDICTS = outcome.Verdict
FOUND = result.Study(
  paper='P',
  number='Fig. 1',
  source='',
  caption='',
  module='m',
  small='Small',
  expected=(result.Expected('', 'a', 1, 2),),
  published=(
    result.Expected('', 'a', 5, 5),
    result.Expected('', 'b', most=1262),
  ),
)


def concluded(scale, output, monkeypatch, **values):
  missing = values.pop('missing', 0)
  measured = study.Measured(values, (), (), missing)
  module = types.SimpleNamespace(measure=lambda *_: measured)
  monkeypatch.setattr(study, '_module', lambda _: module)
  return study.conclude(FOUND, scale, None, output)


def test_small_values_are_compared_with_what_was_expected(
  tmp_path, monkeypatch
):
  found = concluded('small', tmp_path, monkeypatch, a=1.5)
  assert (found.verdict, found.what) == (VERDICTS.SHAPE, 'Small')
  assert (
    concluded('small', tmp_path, monkeypatch, a=3.0).verdict == VERDICTS.NOT
  )
  with pytest.raises(KeyError):  # A small form measures all that it expects.
    concluded('small', tmp_path, monkeypatch, b=1.0)


def test_values_of_the_papers_size_are_compared_with_the_published(
  tmp_path, monkeypatch
):
  of = lambda **values: concluded('paper', tmp_path, monkeypatch, **values)
  assert of(a=5.0, b=1000.0).verdict == VERDICTS.REPRODUCED
  assert of(a=5.1, b=1000.0).verdict == VERDICTS.NOT
  part = of(a=5.0, missing=1)
  assert part.verdict == VERDICTS.NOT_RUN
  assert part.why.endswith('holds; 1 published values were not measured')
  assert of(a=4.0, missing=1).verdict == VERDICTS.NOT
  assert of(a=5.0).verdict == VERDICTS.REPRODUCED  # Of the task that was asked.
  nothing = of(missing=2)
  assert nothing.verdict == VERDICTS.NOT_RUN
  assert nothing.why == 'no published value was measured'


def test_bounds_and_values_read_well():
  assert [each.bounds for each in FOUND.published] == [
    *('exactly 5', 'at most 1,262'),
  ]
  shown = [study.shown(v) for v in (0.28654, 12.0, 1262.0, 3743.21, 1186239.0)]
  assert shown == ['0.2865', '12', '1,262', '3,743.2', '1,186,239']
