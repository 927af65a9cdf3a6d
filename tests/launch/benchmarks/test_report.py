"""The report: ratios of what agrees, ranges, warnings, tables."""

import dataclasses
import json

from launch.benchmarks import harness
from launch.benchmarks import report
from launch.benchmarks import spec
from tests.launch.benchmarks import fakes


@dataclasses.dataclass(frozen=True)
class Settings:
  clients: int = 3
  sizes: tuple[int, ...] = (1, 2)


FAKE = spec.Benchmark(
  name='fake',
  summary='',
  settings=Settings,
  small={},
  contenders=lambda settings: ('a', 'b'),
  pairs=lambda names: spec.pairs_of(names, ('b', 'a'), ('c', 'a')),
  groups=spec.all_together,
  notes=lambda settings: [f'{settings.clients} clients are few.'],
  tolerances={'loss': 0.1},
  build=lambda name, settings: None,
)


def build(passes=2, foreign=(), **checks):
  machine = fakes.Machine()
  contenders = {
    name: fakes.Fake(machine, name, [1.0 + i, 2.0 + i], {'loss': loss}, foreign)
    for i, (name, loss) in enumerate(checks.items())
  }
  plan = harness.Plan(passes=passes, warm_up=0, max_foreign=0.15)
  measured = harness.measure(
    contenders, plan, usage=machine.usage, clock=machine.clock
  )
  return report.build(FAKE, Settings(), measured, plan)


def test_ratios_ranges_and_the_rest():
  found = build(a=1.0, b=1.05)
  assert found['ratios'] == {'b/a': 1.75}
  assert found['ranges'] == {'b/a': [1.5, 2.0]}
  assert found['median_seconds'] == {'a': 1.5, 'b': 2.5}
  assert found['peak_mb'] == {'a': 0.002, 'b': 0.002}
  assert found['parts']['a'] == {'all': 1.5, 'half': 0.75}
  assert (found['passes'], found['dropped']) == (2, 0)
  assert found['warnings'] == []
  assert found['notes'] == ['3 clients are few.']
  assert found['settings'] == {'clients': 3, 'sizes': (1, 2)}
  assert found['machine']['cores'] >= 1
  assert json.loads(json.dumps(found))['name'] == 'fake'


def test_what_computes_something_else_is_a_warning_and_no_number():
  found = build(a=1.0, b=2.0, c=1.0)
  assert list(found['ratios']) == ['c/a']
  assert list(found['median_seconds']) == ['a', 'c']
  assert found['check']['b'] == {'loss': 2.0}
  [warning] = found['warnings']
  assert warning.startswith('b does not compute what a does: loss 2 instead')
  assert 'b' not in report.to_text(found).split('contender')[1].split()


def test_too_few_undisturbed_passes_are_said_plainly():
  found = build(passes=2, foreign=[0.0] + 5 * [900.0], a=1.0)
  assert (found['passes'], found['dropped']) == (1, 5)
  [warning] = found['warnings']
  assert 'only 1 of the 2 passes' in warning
  assert '5 were dropped' in warning


def test_the_tables_are_aligned():
  text = report.to_text(build(a=1.0, b=1.0))
  assert text.startswith('fake: clients=3, sizes=1,2\n2 passes, 0 dropped; ')
  assert '\n3 clients are few.\n\ncontender' in text
  assert '\na               1.5        0\n' in text
  assert '\nb/a      1.75   1.5 – 2\n'
  assert '\nhalf            0.75  1.25\n' in text
