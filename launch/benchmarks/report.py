"""The report of a benchmark: a JSON object, and tables for a terminal."""

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

from launch.benchmarks import harness
from launch.benchmarks import spec
from tff_xc.report import text_table


def build(
  benchmark: spec.Benchmark,
  settings: Any,
  measured: harness.Measured,
  plan: harness.Plan,
) -> dict[str, Any]:
  """Returns the report, ready for JSON.

  Contenders with wrong results are left out of the ratios and named in the
  warnings.

  Keys: name; ratios, by label, medians over passes of the ratio within a pass;
  ranges, [least, largest]; median_seconds; peak_mb, the sum over a contender's
  processes of their peak resident sizes (VmHWM), in 10^6 bytes; parts, median
  seconds; check, of the first round; passes, the number kept; dropped;
  warnings; notes, of the benchmark; settings; plan; machine.
  """
  names = list(measured.peak_bytes)
  wrong: dict[str, str] = {}
  for group in benchmark.groups(names):
    if group:
      wrong |= harness.disagreeing(measured.first, group, benchmark.tolerances)
  right = [name for name in names if name not in wrong]
  ratios = {
    pair.label: harness.ratio(measured, pair.numerator, pair.denominator)
    for pair in benchmark.pairs(right)
  }
  parts = {name: harness.median_parts(measured, name) for name in right}
  return {
    'name': benchmark.name,
    'ratios': {label: r.median for label, r in ratios.items()},
    'ranges': {label: [r.least, r.largest] for label, r in ratios.items()},
    'median_seconds': {
      name: harness.median_seconds(measured, name) for name in right
    },
    'peak_mb': {name: measured.peak_bytes[name] / 1e6 for name in right},
    'parts': {name: part for name, part in parts.items() if part},
    'check': {name: dict(measured.first[name].check) for name in names},
    'passes': len(measured.passes),
    'dropped': measured.dropped,
    'warnings': [*wrong.values(), *_too_few(measured, plan)],
    'notes': list(benchmark.notes(settings)),
    'settings': dataclasses.asdict(settings),
    'plan': dataclasses.asdict(plan),
    'machine': machine(),
  }


def _too_few(measured: harness.Measured, plan: harness.Plan) -> list[str]:
  kept = len(measured.passes)
  if kept >= plan.passes:
    return []
  return [
    f'only {kept} of the {plan.passes} passes asked for were undisturbed, '
    f'{measured.dropped} were dropped: repeat it on a free machine'
  ]


def machine() -> dict[str, Any]:
  """Returns the processor's name and the number of cores."""
  model = 'unknown'
  try:
    with open('/proc/cpuinfo', encoding='utf-8') as lines:
      for line in lines:
        if line.startswith('model name'):
          model = line.split(':', 1)[1].strip()
          break
  except OSError:
    pass
  return {'cpu': model, 'cores': os.cpu_count()}


def to_text(found: Mapping[str, Any]) -> str:
  """Returns the tables, ending in a newline."""
  blocks = [_contenders(found), _ratios(found), _parts(found)]
  tables = [text_table.to_text(block) for block in blocks if len(block) > 1]
  sizes = ', '.join(f'{k}={_value(v)}' for k, v in found['settings'].items())
  machine_ = found['machine']
  head = (
    f'{found["name"]}: {sizes}\n'
    f'{found["passes"]} passes, {found["dropped"]} dropped; '
    f'{machine_["cores"]} cores, {machine_["cpu"]}\n'
  )
  head += ''.join(f'{note}\n' for note in found['notes'])
  return '\n'.join([head, *tables])


def _value(value) -> str:
  return ','.join(map(str, value)) if isinstance(value, list | tuple) else value


def _contenders(found) -> list[list[str]]:
  return [['contender', 'median s', 'peak MB']] + [
    [name, f'{seconds:.4g}', f'{found["peak_mb"][name]:.0f}']
    for name, seconds in found['median_seconds'].items()
  ]


def _ratios(found) -> list[list[str]]:
  return [['ratio', 'median', 'min – max']] + [
    [label, f'{value:.3g}', '{:.3g} – {:.3g}'.format(*found['ranges'][label])]
    for label, value in found['ratios'].items()
  ]


def _parts(found) -> list[list[str]]:
  """Returns a table: one row a part, one column a contender with parts."""
  columns = found['parts']
  names = list(dict.fromkeys(part for c in columns.values() for part in c))
  return [['part, median s', *columns]] + [
    [part] + [f'{c[part]:.3g}' if part in c else '–' for c in columns.values()]
    for part in names
  ]
