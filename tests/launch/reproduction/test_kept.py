"""The results that this repository keeps are those that its commands count."""

import dataclasses
import pathlib
import re

import pytest

from launch import document
from launch.reproduction import experiments
from launch.reproduction import lines
from launch.reproduction import outcome as outcome_lib
from launch.reproduction import page
from launch.sweeps import training
from tasks.papers import registry
from tasks.papers import result
from tests.launch.reproduction import parsed_page
from tff_xc.report import pictures

ROOT = pathlib.Path(__file__).parents[3]
KEPT = ROOT / 'docs' / 'results' / 'small'
# What takes minutes: models are trained, or deltas computed, whose last digits differ
# between machines.
COMPUTED = ('fedss/fig7', 'fedss/fig9')
_NUMBER = re.compile(r'\d+\.?\d*(?:e-\d+)?')


def measured_again(name, folder, monkeypatch):
  """Returns a result as the kept runs give it; of a study, as it is measured."""
  found = registry.RESULTS[name]
  is_study = isinstance(found, result.Study)
  if not is_study:  # Nothing is trained, and so nothing written there.
    (folder / 'runs').symlink_to(KEPT / 'runs')
  asked = experiments.Request(
    names=(name,), scale='small', output=folder, train=is_study
  )
  planned = experiments.plan_one(found, asked)
  # Otherwise the result of before could be told again.
  assert all(map(training.is_finished, planned.by_folder.values()))
  # Pictures, and the page, would take most of the time.
  monkeypatch.setattr(pictures, 'save', lambda *_: None)
  experiments._measure(planned, {})
  return outcome_lib.read(folder, name)


def text_of(folder, name, file):
  path = outcome_lib.folder(folder, name) / file
  return path.read_text(encoding='utf-8') if path.exists() else None


@pytest.mark.parametrize(
  'name', [name for name in registry.RESULTS if name not in COMPUTED]
)
def test_what_is_kept_is_measured_again(name, tmp_path, monkeypatch):
  now = measured_again(name, tmp_path, monkeypatch)
  kept = outcome_lib.read(KEPT, name)
  assert kept == dataclasses.replace(now, version=kept and kept.version)
  for file in ('result.md', lines.CSV):
    assert text_of(KEPT, name, file) == text_of(tmp_path, name, file)


@pytest.mark.slow
@pytest.mark.parametrize('name', COMPUTED)
def test_what_is_kept_is_computed_again(name, tmp_path, monkeypatch):
  now = outcome_lib.to_markdown(measured_again(name, tmp_path, monkeypatch))
  before = outcome_lib.to_markdown(outcome_lib.read(KEPT, name))
  assert before == text_of(KEPT, name, 'result.md')
  words = [_NUMBER.sub('0', text).split() for text in (now, before)]
  assert words[0] == words[1]
  found, wanted = ([*map(float, _NUMBER.findall(t))] for t in (now, before))
  # Less than 1e-9 is rounding.
  assert found == pytest.approx(wanted, rel=0.05, abs=1e-9)


def test_nothing_else_is_kept():
  names = {str(path.parent.relative_to(KEPT)) for path in KEPT.glob('*/*/*')}
  names = {name for name in names if not name.startswith('runs/')}
  assert names == set(registry.RESULTS)


def test_the_readme_and_the_page_count_the_same():
  text = document.document(ROOT / 'README.md')
  [total] = re.findall(r'^\| all \| (.*) \| \d+ \|$', text, re.MULTILINE)
  shown = parsed_page.Page(page._page(KEPT, 'small')).verdicts()
  assert list(map(int, total.split(' | '))) == list(shown.values())
  assert list(shown) == list(outcome_lib.Verdict)
