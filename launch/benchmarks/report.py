"""The report of a benchmark: a JSON object, and its tables."""

import dataclasses
import json
import math
import os
import pathlib
import re
import statistics
from collections.abc import Mapping
from typing import Any

from launch import machine as machine_lib
from launch.benchmarks import harness
from launch.benchmarks import spec
from tff_xc import errors
from tff_xc import wording
from tff_xc.report import text_table

# What the tables of the documentation need.
_SHOWN = (
  *('name', 'command', 'date', 'git_revision', 'machine', 'settings', 'notes'),
  *('passes', 'dropped', 'warnings', 'median_seconds', 'peak_mb', 'parts'),
  *('ratios', 'ranges'),
)
# `exponent` needs values that are so many times that of the smallest size.
_ABOVE = 1.5


def build(
  benchmark: spec.Benchmark,
  settings: Any,
  measured: harness.Measured,
  plan: harness.Plan,
) -> dict[str, Any]:
  """Returns the report, ready for JSON.

  Contenders with wrong results are left out of the ratios and named in the
  warnings. `ratios` are medians over passes of the ratio within a pass, `peak_mb`
  the sum over a contender's processes of their peak resident sizes (VmHWM).
  """
  names = list(measured.peak_bytes)
  wrong: dict[str, str] = {}
  for group in benchmark.same(names):
    wrong |= harness.disagreeing(measured.first, group, benchmark.tolerances)
  right = [name for name in names if name not in wrong]
  ratios = {
    f'{above}/{below}': [
      replies[above].seconds / replies[below].seconds
      for replies in measured.passes
    ]
    for above, below in benchmark.pairs(right)
  }
  median = lambda name, of: statistics.median(
    of(replies[name]) for replies in measured.passes
  )
  parts = {
    name: {
      part: median(name, lambda reply, part=part: reply.parts[part])
      for part in measured.passes[0][name].parts
    }
    for name in right
  }
  kept, warnings = len(measured.passes), list(wrong.values())
  if kept < plan.passes:
    warnings.append(
      f'only {kept} of the {plan.passes} passes asked for were undisturbed, '
      f'dropped: {measured.dropped}; repeat it on a free machine'
    )
  return {
    'name': benchmark.name,
    'ratios': {label: statistics.median(r) for label, r in ratios.items()},
    'ranges': {label: [min(r), max(r)] for label, r in ratios.items()},
    'median_seconds': {
      name: median(name, lambda reply: reply.seconds) for name in right
    },
    'peak_mb': {name: measured.peak_bytes[name] / 1e6 for name in right},
    'parts': {name: part for name, part in parts.items() if part},
    'check': {name: dict(measured.first[name].check) for name in names},
    'passes': kept,
    'dropped': measured.dropped,
    'warnings': warnings,
    'notes': list(benchmark.notes(settings)),
    'settings': dataclasses.asdict(settings),
    'plan': dataclasses.asdict(plan),
    'machine': machine(),
  }


def by_size(values: Mapping[str, float]) -> dict[str, dict[int, float]]:
  """Returns the values of contenders 'NAME@SIZE', by NAME and ascending size.

  Contenders whose size is no whole number are left out.
  """
  found: dict[str, dict[int, float]] = {}
  for contender, value in values.items():
    name, size = spec.name_and_size(contender)
    if size.isdecimal():
      found.setdefault(name, {})[int(size)] = value
  return {name: dict(sorted(of.items())) for name, of in found.items()}


def exponent(values: Mapping[int, float]) -> float | None:
  """Returns p, if what a size adds to the smallest one grows as (its excess)^p.

  With a constant part and a linear one it is exactly 1. It is the slope of the
  least-squares line through log(value - smallest's) over log(size - smallest), of
  sizes with at least 1.5 times the smallest's value; None if there are fewer than
  two of these.
  """
  (first, floor), *others = sorted(values.items())
  added = [
    (math.log(size - first), math.log(value - floor))
    for size, value in others
    if value >= _ABOVE * floor
  ]
  if len(added) < 2:
    return None
  return statistics.linear_regression(*zip(*added, strict=True)).slope


def machine() -> dict[str, Any]:
  """Returns what the processor is, the number of cores, and NVIDIA's GPUs."""
  return {
    'cpu': machine_lib.processor(),
    'cores': os.cpu_count(),
    'gpus': gpu_names(pathlib.Path('/proc/driver/nvidia/gpus')),
  }


def gpu_names(folder: pathlib.Path) -> list[str]:
  """Returns the names of the GPUs that NVIDIA's driver tells of in this folder."""
  told = [path.read_text() for path in sorted(folder.glob('*/information'))]
  return re.findall(r'^Model:\s*(.+)', '\n'.join(told), re.MULTILINE)


def read(path: pathlib.Path) -> dict[str, Any]:
  """Returns what `launch.benchmark --output=PATH` wrote."""
  try:
    found = json.loads(path.read_text(encoding='utf-8'))
    missing = [key for key in _SHOWN if key not in found]
  except (OSError, ValueError, TypeError) as e:
    raise errors.InputError(f'{path} is no report of a benchmark ({e})') from e
  if missing:
    raise errors.InputError(
      f'{path} has no {", ".join(missing)}; write it with launch.benchmark again'
    )
  return found


def to_text(found: Mapping[str, Any]) -> str:
  """Returns the tables, ending in a newline."""
  tables = map(text_table.to_text, _tables(found))
  head = [*_circumstances(found), *found['notes']]
  return '\n'.join([''.join(f'{line}\n' for line in head), *tables])


def to_markdown(found: Mapping[str, Any], is_short: bool = False) -> str:
  """Returns the same tables in Markdown, and below them how they were made."""
  tables = _tables(found)
  if is_short:
    of = {table[0][0]: table for table in tables}
    tables = [of.get('ratio') or of.get('growth') or tables[0]]
  revision = found['git_revision'] or 'unknown'
  lines = [f'`{found["command"]}`', *_circumstances(found)]
  below = [
    f'{"; ".join(lines)}; revision {revision}, {found["date"]}.',
    *found['notes'],
    *(f'**Warning**: {each}' for each in found['warnings']),
  ]
  tables = [text_table.to_markdown(table) for table in tables]
  return '\n'.join([*tables, *below, ''])


def _circumstances(found) -> list[str]:
  """Returns a line of sizes, and one of passes and machine."""
  sizes = ', '.join(
    f'{k}={",".join(map(str, v)) if isinstance(v, list | tuple) else v}'
    for k, v in found['settings'].items()
  )
  machine = found['machine']
  return [
    f'{found["name"]}: {sizes}',
    f'{wording.count(found["passes"], "pass")}, {found["dropped"]} dropped; '
    f'{wording.count(machine["cores"], "core")}, '
    + ', '.join([machine['cpu'], *machine.get('gpus', ())]),
  ]


def _tables(found) -> list[list[list[str]]]:
  """Returns the tables that have rows, as cells: times, ratios, growth and parts."""
  times = [['contender', 'median s', 'peak MB']] + [
    [name, f'{seconds:.4g}', f'{found["peak_mb"][name]:.0f}']
    for name, seconds in found['median_seconds'].items()
  ]
  ratios = [['ratio', 'median', 'min – max']] + [
    [label, f'{value:.3g}', '{:.3g} – {:.3g}'.format(*found['ranges'][label])]
    for label, value in found['ratios'].items()
  ]
  growth = [['growth', 'sizes', 'median s', 'exponent', 'peak MB', 'exponent']]
  peaks = by_size(found['peak_mb'])
  for name, seconds in by_size(found['median_seconds']).items():
    if len(seconds) < 3:
      continue
    least, *_, most = seconds
    line = [name, f'{least} – {most}']
    for values, digits in ((seconds, '.3g'), (peaks[name], '.0f')):
      slope = exponent(values)
      line += [
        f'{values[least]:{digits}} – {values[most]:{digits}}',
        '–' if slope is None else f'{slope:.2f}',
      ]
    growth.append(line)
  columns = found['parts']
  names = dict.fromkeys(part for c in columns.values() for part in c)
  parts = [['part, median s', *columns]] + [
    [part] + [f'{c[part]:.3g}' if part in c else '–' for c in columns.values()]
    for part in names
  ]
  tables = times, ratios, growth, parts
  return [table for table in tables if len(table) > 1]
