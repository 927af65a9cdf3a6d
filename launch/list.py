"""Lists the tasks, algorithms, encoders, metrics, benchmarks or published tables.

  python -m launch.list tasks|algorithms|encoders|metrics|benchmarks|tables

The argument names the list:

  tasks       tasks with their classes, required files and published results
  algorithms  algorithms with their papers and hyperparameters; which class rows clients
              receive, which loss they minimize, and what the server does
  encoders    networks for images and items (--encoder)
  metrics     metrics with their units, and whether higher or lower values are better
  benchmarks  benchmarks with their contenders and sizes
  tables      published tables and figures, the data that each one needs, and whether this
              machine has the data
"""

import functools
import re
import textwrap
from collections.abc import Sequence

from launch import app, benchmark as benchmark_lib
from tasks import configuration, encoders, registry as tasks, task as task_lib
from tasks.papers import registry as papers, table as table_lib
from tff_xc import errors, wording
from tff_xc.algorithms import base, registry as algorithms
from tff_xc.measure import catalog as metrics
from tff_xc.report import text_table


def _tasks(width: int) -> str:
  found = [['task', 'classes', 'what', 'needs']]
  published = [['task', 'paper', 'published']]
  for task in tasks.TASKS.values():
    classes = task.known_classes(task.option_values())
    shown = f'{classes:,}' if classes else '–'
    found.append([task.name, shown, task.summary, task.data or 'no files'])
    for table in papers.of_task(task.name):
      published.append([task.name, table.title, table.summary(task.name)])
  return _blocks(found, published, width=width)


def _blocks(*tables: Sequence[Sequence[str]], width: int) -> str:
  return '\n'.join(text_table.to_text(rows, range(len(rows[0])), width) for rows in tables)


def _algorithms(width: int) -> str:
  answers = [['algorithm', 'paper', *base.Answers._fields]]
  shared = algorithms.get('fedavg').names
  taken = [['algorithm', 'its own hyper-parameters', 'not']]
  for name, algorithm in algorithms.ALGORITHMS.items():
    answers.append([name, algorithm.paper, *algorithm.answers])
    own = [n for n in algorithm.names if n not in shared]
    lacks = [n for n in shared if n not in algorithm.names]
    if own or lacks:
      taken.append([name, ', '.join(own), ', '.join(lacks)])
  about = f'All algorithms take {", ".join(shared)}, except those listed under "not".'
  about += ' `launch.train --help --algorithm=NAME` describes each of them, with its value.'
  shown = _blocks(answers, taken, width=width)
  return f'{shown}\n{textwrap.fill(about, width)}\n'


def _encoders(width: int) -> str:
  return _blocks([['encoder', 'what'], *map(list, encoders.ENCODERS.items())], width=width)


def _metrics(width: int) -> str:
  columns = ('heading', 'unit', 'better', 'meaning')
  groups = {
    'metric': metrics.SCORES,
    'of every round': metrics.ROUND,
    "of some algorithms' rounds": metrics.STEPS,
  }
  tables = [
    [[first, *columns]] + [[n, *(getattr(m, c) for c in columns)] for n, m in named.items()]
    for first, named in groups.items()
  ]
  return _blocks(*tables, width=width)


def _benchmarks(width: int) -> str:
  measured = [['benchmark', 'measures']]
  rows = [['benchmark', 'contenders', 'sizes']]
  for benchmark in benchmark_lib.BENCHMARKS.values():
    names = benchmark.names + benchmark.optional + benchmark.peers
    sizes = [f'{name}={_values(size)}' for name, size in benchmark.sizes.items()]
    measured.append([benchmark.name, benchmark.summary])
    rows.append([benchmark.name, ', '.join(names), ', '.join(sizes)])
  return _blocks(measured, rows, width=width)


def _values(size) -> str:
  """Returns a size as text, or several sizes, separated by commas."""
  values = list(map(str, size)) if isinstance(size, tuple) else [str(size)]
  return ','.join(values)


def _tables(width: int) -> str:
  directory = configuration.SETTINGS['data_dir'].default
  captions = [['table', 'what']]
  needs = [['table', 'small', 'needs']]
  for name, each in papers.KNOWN.items():
    captions.append([name, f'{each.title}, {each.source}. {each.caption}'])
    needs.append([name, *_needs(each, directory)])
    if form := each.forms.get('real'):
      told = _of_rows(form.rows, directory)
      needs.append([f'{name} --scale=real', form.what, told])
  about = (
    'small: the runs of `launch.reproduce NAME`, which take minutes. In lines with --scale=real,'
    ' the runs take hours. needs: the data for --scale=paper, or, in lines with --scale=real, for'
    f' this scale. The files are looked for in {directory}, but not read. `launch.reproduce NAME'
    ' --scale=paper --finished_only` shows the published numbers.'
  )
  shown = _blocks(captions, needs, width=width)
  return f'{textwrap.fill(about, width)}\n\n{shown}'


def _needs(each: table_lib.Result, directory: str) -> tuple[str, str]:
  """Returns what a table runs at the small scale, and the data that the table needs.

  The names of missing data are marked.
  """
  if isinstance(each, table_lib.Formula):
    return 'formulas', 'nothing'
  if isinstance(each, table_lib.Diagram):
    return 'a diagram', 'nothing'
  if isinstance(each, table_lib.Study):
    told = re.sub(r'[\w-]+', lambda w: _told(w[0], directory), each.needs)
    return each.form('small').what, told or 'nothing'
  return each.form('small').what or '–', _of_rows(each.rows, directory)


def _of_rows(rows: Sequence[table_lib.Row], directory: str) -> str:
  """Returns the tasks of rows that need data, and marks those whose data are missing."""
  names = dict.fromkeys(row.task for row in rows)
  told = [_told(name, directory) for name in names if tasks.get(name).find]
  return ', '.join(told) or 'nothing'


@functools.cache
def _told(word: str, directory: str) -> str:
  """Returns a word, with a note if the word is a task whose data are incomplete."""
  if word not in tasks.TASKS or not tasks.get(word).find:
    return word
  lacks = task_lib.state(tasks.get(word).find, directory)
  return f'{word} ({lacks})' if lacks else word


_LISTS = {
  'tasks': _tasks,
  'algorithms': _algorithms,
  'encoders': _encoders,
  'metrics': _metrics,
  'benchmarks': _benchmarks,
  'tables': _tables,
}


def main(arguments: Sequence[str]) -> None:
  """Prints the list that the command line names."""
  if len(arguments) != 1 or arguments[0] not in _LISTS:
    *first, last = _LISTS
    given = f'{" ".join(arguments)!r}: ' if arguments else ''
    raise errors.InputError(
      f'{given}name what to list: {", ".join(first)} or {last}'
      + wording.meant(arguments[0] if arguments else '', _LISTS)
    )
  print(_LISTS[arguments[0]](text_table.terminal_width()), end='')


if __name__ == '__main__':
  app.run(main, __doc__)
