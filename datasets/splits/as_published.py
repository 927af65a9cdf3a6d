"""Compares a split, and its input, with what was published of them."""

from collections.abc import Iterator
from collections.abc import Mapping
from typing import Any

from datasets.splits import rule as rule_lib


def compare(
  rule: rule_lib.Rule,
  settings: Mapping[str, Any],
  facts: Mapping[str, Any],
  summary: Mapping[str, Any],
) -> dict[str, Any]:
  """Returns what summary.json says of a rule with a published split.

  Args:
    rule: the rule.
    settings: its settings.
    facts: of the input, `Listing.facts`. What it lacks is not compared.
    summary: of the split that was made.

  Returns:
    `is_the_input` and `is_the_rule`: whether the input's facts and the settings
    are the published ones; `input`, `settings` and `counts`: those that differ,
    as {name: {'published': value, 'found': value}}; `not_compared`: counts that a
    draw decides which was not published, likewise; and `why` they differ, if that
    is known.
  """
  published = rule.published
  input_differs = _differing(published.input, {**published.input, **facts})
  defaults = {name: flag.default for name, flag in rule.flags.items()}
  settings_differ = _differing(defaults, settings)
  exact = {
    name: value
    for name, value in published.counts.items()
    if name not in published.drawn
  }
  return {
    'is_the_input': not input_differs,
    'is_the_rule': not settings_differ,
    'input': input_differs,
    'settings': settings_differ,
    'counts': _differing(exact, summary),
    'not_compared': {
      name: {'published': published.counts[name], 'found': summary[name]}
      for name in published.drawn
    },
    **({'why': published.why} if published.why else {}),
  }


def _differing(
  published: Mapping[str, Any], found: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
  return {
    name: {'published': value, 'found': found[name]}
    for name, value in published.items()
    if found[name] != value
  }


def lines(report: Mapping[str, Any] | None) -> Iterator[str]:
  """Yields the lines for a user: how the split relates to the published one."""
  if report is None:
    return
  if not report['is_the_input']:
    yield (
      f'note: the input is not the published one: {_told(report["input"])}; the'
      ' published counts do not apply'
    )
  if not report['is_the_rule']:
    yield (
      f'note: other settings than the published ones: {_told(report["settings"], "--")}'
    )
  if report['is_the_input'] and report['is_the_rule']:
    if report['counts']:
      yield (
        'warning: the input is the published one, by its counts, and the split is'
        f' not: {_told(report["counts"])}{_because(report)}'
      )
    else:
      yield 'note: the input and the counts of the split are as published'
    if report['not_compared']:
      yield (
        f'note: of a draw that was not published: {_told(report["not_compared"])}'
      )


def _because(report: Mapping[str, Any]) -> str:
  return f' ({report["why"]})' if 'why' in report else ''


def _told(
  differences: Mapping[str, Mapping[str, Any]], before: str = ''
) -> str:
  return '; '.join(
    f'{before}{name} {_shown(both["found"])}, published'
    f' {_shown(both["published"])}'
    for name, both in differences.items()
  )


def _shown(value: Any) -> str:
  return f'{value:,}' if isinstance(value, int) else str(value)
