"""A small published table for tests, and runs that were not trained."""

import json

from launch.reproduction import lines as lines_lib
from tasks.papers import registry, table
from tests.report import fake_runs

NAME = 'fedmlh/table3'


def number(text):
  """Returns a number as papers print it, or None for '–'."""
  value, _, std = text.strip('–').partition('±')
  return table.Number.read(value.strip('>'), std, '>' in value)


def row(algorithm, printed, task='glyphs', **changes):
  of = dict(zip(('top1', 'map@10'), map(number, printed.split()), strict=False))
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
  forms={'small': SMALL, 'paper': table.Form('', ROWS, (), (0, 1, 2))},
)


def finish(run, top1):
  """Writes a finished run with this top-1."""
  fake_runs.write_run(run.folder, top1=top1)
  (run.folder / 'config.json').write_text(json.dumps(run.config))


def line(**cells):
  """Returns a CSV line with these cells."""
  of = {'table': 'fig1', 'scale': 'paper', 'metric': 'top1', **cells}
  return lines_lib._line([str(of.get(n, '')) for n in lines_lib.COLUMNS])


def measured(name=NAME, scale='small', **more):
  """Returns a result with one line."""
  of = {
    'table': name.partition('/')[2],
    'scale': scale,
    'row': 'fedmlh',
    'metric': 'pc@1',
    'published': '59.3',
    'mean': 60.0,
    'seeds': 1,
    'task': 'eurlex-4k-sets',
    **more,
  }
  return lines_lib.Measured(registry.RESULTS[name], scale, [line(**of)])
