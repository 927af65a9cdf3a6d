"""A small published table for tests, and runs that were not trained."""

import json
import pathlib

from launch.reproduction import experiments
from launch.reproduction import results
from launch.reproduction import studies
from tasks.papers import registry
from tasks.papers import table
from tests.report import fake_runs

NAME = 'fedmlh/table3'


def row(algorithm, printed, task='glyphs', **changes):
  values = [None if p == '–' else p for p in printed.split()]
  of = dict(zip(('top1', 'map@10'), values, strict=False))
  return table.Row(task, algorithm, of, {'rounds': 20, **changes})


ROWS = (
  row('fedss', '60.0 20.0', negatives=5),
  row('fedss', '80.0 30.0', negatives=9),
  row('posonly', '40.0 –'),
)
CLAIMS = (table.Claim('FedSS is ahead (abstract)', 'top1', 'fedss', 'posonly'),)
SMALL = table.Form('Two methods on procedural glyphs', ROWS, CLAIMS)
TABLE = table.PaperTable(
  paper='P',
  number='Fig. 1',
  source='arXiv:1',
  caption='Top-1 by negatives',
  rows=ROWS,
  small=SMALL,
)


def finish(run, top1):
  """Writes a run that has finished with this top-1."""
  fake_runs.write_run(run.folder, top1=top1)
  (run.folder / 'config.json').write_text(json.dumps(run.config))


def resolved(name, scale, task=None, output='out', **given):
  """Returns the module of a study, and what it resolves of a command line."""
  module = studies.module(registry.RESULTS[name])
  output = pathlib.Path(output)
  request = experiments.Request(
    scale=scale, task=task, given=given, output=output
  )
  return module, module.resolve(name, request)


def measured(name=NAME, scale='small', **more):
  """Returns a result with one line."""
  line = {'table': name.partition('/')[2], 'scale': scale, 'row': 'fedmlh'}
  line |= {'metric': 'pc@1', 'published': '59.3', 'mean': 60.0, 'seeds': 1}
  lines = results.frame([{**line, 'task': 'eurlex-4k-sets', **more}])
  return results.Measured(registry.RESULTS[name], scale, lines)
