"""The harness: order, warm-up, ratios within a pass, disturbed passes."""

import os

import pytest

from launch.benchmarks import contender
from launch.benchmarks import cpu
from launch.benchmarks import harness
from tests.launch.benchmarks import fakes
from tff_xc import errors


@pytest.fixture
def machine(monkeypatch):
  monkeypatch.setattr(os, 'cpu_count', lambda: 2)
  return fakes.Machine()


def measure(machine, contenders, **plan):
  return harness.measure(
    contenders,
    harness.Plan(**plan),
    usage=machine.usage,
    clock=machine.clock,
  )


def test_every_pass_runs_each_contender_once_in_a_seeded_shuffled_order(
  machine,
):
  def orders(seed):
    machine.order.clear()
    contenders = {n: fakes.Fake(machine, n, [1.0]) for n in 'abc'}
    measure(machine, contenders, passes=12, warm_up=2, seed=seed)
    assert machine.order[:6] == list('aabbcc')  # Warm-up, one by one.
    passes = machine.order[6:]
    return [tuple(passes[i : i + 3]) for i in range(0, len(passes), 3)]

  found = orders(0)
  assert len(found) == 12
  assert all(sorted(order) == list('abc') for order in found)
  assert len(set(found)) > 2
  assert orders(0) == found
  assert orders(1) != found


def test_without_warm_up_each_first_round_is_said_as_it_ends(machine):
  said = []
  contenders = {n: fakes.Fake(machine, n, [2.0]) for n in 'abc'}
  measured = harness.measure(
    contenders,
    harness.Plan(passes=1, warm_up=0),
    usage=machine.usage,
    clock=machine.clock,
    say=said.append,
  )
  assert said[3:6] == [f'{name}: 2 s' for name in machine.order]
  # The report's order is not the pass's.
  assert list(measured.peak_bytes) == list('abc') != machine.order


def test_ratios_are_taken_within_a_pass(machine):
  # The machine slows down by ten in every second pass; the ratio does not.
  contenders = {
    'a': fakes.Fake(machine, 'a', [1.0, 10.0]),
    'b': fakes.Fake(machine, 'b', [2.0, 20.0, 2.0, 30.0]),
  }
  measured = measure(machine, contenders, passes=4, warm_up=0)
  ratio = harness.ratio(measured, 'b', 'a')
  assert (ratio.median, ratio.least, ratio.largest) == (2.0, 2.0, 3.0)
  assert harness.median_seconds(measured, 'a') == 5.5
  assert harness.median_parts(measured, 'a') == {'all': 5.5, 'half': 2.75}
  assert measured.peak_bytes == {'a': 4000, 'b': 4000}
  assert measured.first['b'].seconds == 2.0


def test_a_disturbed_pass_is_dropped_and_repeated(machine):
  # Rounds 1 and 2 of a, after its warm-up; 15 % of 2 cores x 2 s are 0.6 s.
  contenders = {
    'a': fakes.Fake(machine, 'a', [1.0], foreign=[9.0, 0.7, 0.5]),
    'b': fakes.Fake(machine, 'b', [1.0]),
  }
  measured = measure(machine, contenders, passes=3, warm_up=1)
  assert len(measured.passes) == 3
  assert measured.dropped == 1
  assert contenders['b'].rounds == 5


def test_it_gives_up_after_three_times_the_passes(machine):
  disturbed = [0.0, 0.0] + 7 * [9.0]
  contenders = {'a': fakes.Fake(machine, 'a', [1.0], foreign=disturbed)}
  measured = measure(machine, contenders, passes=3, warm_up=0)
  assert (len(measured.passes), measured.dropped) == (2, 7)
  contenders = {'a': fakes.Fake(machine, 'a', [1.0], foreign=9 * [9.0])}
  with pytest.raises(errors.InputError, match='all 9 passes were disturbed'):
    measure(machine, contenders, passes=3, warm_up=0)
  assert not contenders['a'].is_running


@pytest.mark.parametrize('error', [errors.InputError('x'), KeyboardInterrupt()])
def test_all_contenders_are_ended_whatever_happens(machine, error):
  def fail():
    raise error

  contenders = {n: fakes.Fake(machine, n, [1.0]) for n in 'abc'}
  contenders['b'].round = fail
  with pytest.raises(type(error)):
    measure(machine, contenders)
  assert not any(c.is_running for c in contenders.values())


@pytest.mark.parametrize(
  ('check', 'message'),
  [
    ({'loss': 1.01, 'norm': 5.0}, None),
    ({'loss': 1.01}, None),
    ({'loss': 1.2}, 'loss 1.2 instead of 1'),
    ({'loss': float('nan')}, 'loss nan instead'),
    ({'other': 1.0}, 'nothing that tells'),
  ],
)
def test_what_computes_something_else_is_found(check, message):
  first = {
    'a': contender.Reply(1.0, {'loss': 1.0, 'norm': 5.0}),
    'b': contender.Reply(1.0, check),
  }
  wrong = harness.disagreeing(first, ['a', 'b'], {'loss': 0.05, 'norm': 0.05})
  if message is None:
    assert wrong == {}
  else:
    assert list(wrong) == ['b']
    assert message in wrong['b']


def test_foreign_part_is_what_the_own_tree_did_not_use():
  before, after = cpu.Usage(100.0, 40.0), cpu.Usage(104.0, 43.0)
  assert harness.foreign_part(before, after, 10.0) == pytest.approx(0.1)
  less = cpu.Usage(102.9, 43.0)  # Of the kernel's rounding.
  assert harness.foreign_part(before, less, 10.0) == 0.0
