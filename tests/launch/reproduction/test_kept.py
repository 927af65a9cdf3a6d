"""The results that this repository keeps are those that its commands count."""

import dataclasses
import pathlib
import re

import pytest

from launch import document
from launch.reproduction import experiments
from launch.reproduction import outcome as outcome_lib
from launch.reproduction import page
from tasks.papers import registry
from tasks.papers import result
from tests.launch.reproduction import parsed_page

ROOT = pathlib.Path(__file__).parents[3]
KEPT = ROOT / 'docs' / 'results' / 'small'
FORMULAS = [
  found
  for found in registry.RESULTS.values()
  if isinstance(found, result.Formula)
]


@pytest.mark.parametrize('found', FORMULAS, ids=lambda found: found.name)
def test_what_a_formula_gives_is_kept(found, tmp_path):
  asked = experiments.Request(
    names=(found.name,), scale='small', output=tmp_path
  )
  experiments.run_all([experiments.plan_one(found, asked)], asked)
  now = outcome_lib.read(tmp_path, found.name)
  kept = outcome_lib.read(KEPT, found.name)
  assert kept == dataclasses.replace(now, version=kept and kept.version)


def test_the_readme_and_the_page_count_the_same():
  text = document.document(ROOT / 'README.md')
  [total] = re.findall(r'^\| all \| (.*) \| \d+ \|$', text, re.MULTILINE)
  shown = parsed_page.Page(page._page(KEPT, 'small')).verdicts()
  assert list(map(int, total.split(' | '))) == list(shown.values())
  assert list(shown) == list(outcome_lib.Verdict)
