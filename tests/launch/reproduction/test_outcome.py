"""Verdicts on what was expected, and results that cannot be read."""

import json
import re

import pytest

from launch.reproduction import outcome as outcome_lib
from tff_xc import errors

VERDICTS = outcome_lib.Verdict
WRITTEN = outcome_lib.Outcome(
  name='fedmlh/table5',
  scale='small',
  verdict=VERDICTS.SHAPE,
  why='what was expected holds',
  checked=(outcome_lib.Checked('a: at least 5', '6', True),),
)


def test_a_verdict_says_what_the_runs_are_too_short_for():
  checked = lambda *holds: [outcome_lib.Checked('a', '', h) for h in holds]
  verdict, why = outcome_lib.judged(checked(True, True, None))
  assert verdict == VERDICTS.SHAPE
  assert why == (
    '2 of 3 expectations hold, and the runs are too short to tell of the others'
  )
  assert outcome_lib.judged(checked(True, None))[0] == VERDICTS.NOT
  assert outcome_lib.judged(checked(True, None, False))[0] == VERDICTS.NOT


@pytest.mark.parametrize(
  ('change', 'problem'),
  [
    (
      lambda found: found | {'x': 1, 'version': 'abc'},
      'is of another version of this program (with the unknown x, its numbers are'
      ' of revision abc); read it with the one that wrote it, or delete it, and run'
      ' launch.reproduce fedmlh/table5 again',
    ),
    (
      lambda found: {n: v for n, v in found.items() if n != 'checked'},
      'of another version of this program (without checked);',
    ),
    (
      lambda found: found | {'verdict': 'nearly'},
      "of another version of this program (with the unknown verdict 'nearly');",
    ),
    (
      lambda found: found | {'name': 'fedss/table1'},
      'damaged (it is of fedss/',
    ),
    (lambda found: [found], 'is damaged ('),
    (lambda found: {}, 'is damaged ('),
    (lambda found: found | {'verdict': []}, 'of another version'),
  ],
)
def test_a_result_of_another_version_is_not_called_damaged(
  change, problem, tmp_path
):
  path = tmp_path / 'fedmlh/table5/result.json'
  outcome_lib.write(WRITTEN, tmp_path)
  path.write_text(json.dumps(change(json.loads(path.read_text()))))
  with pytest.raises(errors.InputError, match=re.escape(problem)):
    outcome_lib.read(tmp_path, WRITTEN.name)
