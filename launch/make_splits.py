"""Splits data over clients by a rule, and writes the split as CSV files.

  python -m launch.make_splits RULE --input=DATA --output=DIR [--seed=S] \\
    [--test_fraction=0.1] [flags of the rule]
  python -m launch.make_splits --inspect=SPLIT.csv[:COLUMN] [--output=DIR]

DATA is one of
  a folder, tar or zip of images, with a folder for each class
  a table (.csv, .tsv, .jsonl, .ndjson, .parquet)
  the official files of CIFAR-10 or CIFAR-100
  a text file of the Extreme Classification Repository
  an .npz file with the arrays y (labels) and client
  JSON files of LEAF

The rule of a published split needs the files that the owners of the data distribute. The
command writes federated_train.csv (user_id,image_id,class), test.csv, classes.csv,
summary.json and pictures to DIR. If the command fails, it writes none of these files. The
command refuses a DIR that contains other files. The same data, rule and seed give the same
files. With --inspect, the command describes an existing split file.
"""

import sys
from collections.abc import Mapping, Sequence

from absl import flags

from datasets.splits import rules
from launch import app, settings
from tff_xc import errors
from tff_xc.options import hyperparameters as hp
from tff_xc.report import pictures, text_table


def _flags() -> dict[str, str]:
  """Returns the help texts of the flags of all rules, by name."""
  meanings: dict[str, dict[str, list[str]]] = {}
  for name, rule in rules.RULES.items():
    for flag in rule.flags:
      text = f'{flag.help} (default {flag.default})'
      meanings.setdefault(flag.name, {}).setdefault(text, []).append(name)
  return {
    flag: '; '.join(f'{", ".join(by)}: {text}' for text, by in found.items())
    for flag, found in meanings.items()
  }


def make(
  request: rules.Request | None, path: str, columns: Mapping[str, str | None], output: str | None
) -> str:
  """Makes a split, except if the folder `output` already has it; returns the tables as text."""
  from datasets.readers import tables
  from datasets.splits import making

  columns = tables.Columns(**columns)
  found = making.find(output, request) if output else None
  made = making.make(request, path, columns) if request else making.inspect(path, columns)
  for line in making.published_lines(made.summary.get('published')):
    print(line, file=sys.stderr)
  text = making.to_text(made.summary, text_table.terminal_width())
  if found is not None:
    if found.get('fingerprint') != made.summary['fingerprint']:
      raise making.occupied(output, 'a split of other data')
    if pictures.formats():
      making.draw_again(output, made)
    return f'{text}\n{output} holds this split already\n'
  if not output:
    return text
  making.check_apart(output, path, request, made)
  making.write(output, made)
  return f'{text}\nwritten to {output}\n'


def main(arguments: Sequence[str]) -> None:
  """Makes or inspects the split that the command line names."""
  values = flags.FLAGS
  columns = {n: values[f'{n}_column'].value for n in ('label', 'user', 'id')}
  if values.inspect is not None:
    others = ('input', 'seed', 'test_fraction', 'test_per_class', *_flags())
    for given in [*arguments, *(f'--{n}' for n in others if values[n].present)]:
      raise errors.InputError(f'{given} does not go with --inspect, which only reads a split file')
    print(make(None, values.inspect, columns, values.output), end='')
    return
  if len(arguments) != 1:
    raise errors.InputError(f'name one rule, {", ".join(rules.RULES)}; or give --inspect=SPLIT.csv')
  [name] = arguments
  given = {flag: values[flag].value for flag in _flags() if values[flag].value is not None}
  rule_settings = rules.get(name).settings(**rules.settings_of(name, given))
  request = rules.Request(
    name, rule_settings, values.seed, values.test_fraction, values.test_per_class
  )
  request.check()
  for name in ('input', 'output'):
    if not values[name].value:
      raise errors.InputError(f'--{name} is missing; give --input=DATA and --output=DIR')
  print(make(request, values.input, columns, values.output), end='')


def _usage(arguments: Sequence[str]) -> str:
  """Returns the text of `--help` above the flags.

  If the arguments name a rule, the function removes the flags of other rules. Otherwise, the
  text lists the rules.
  """
  if arguments:
    name, rule = arguments[0], rules.get(arguments[0])
    for other in {*_flags(), 'inspect'} - {f.name for f in rule.flags}:
      delattr(flags.FLAGS, other)
    for flag in rule.flags:
      flags.FLAGS[flag.name].help = f'{flag.help} (default {flag.default})'
    return (
      f'{name}: {rule.summary}\n\n  python -m launch.make_splits {name} --input=DATA --output=DIR'
    )
  width = max(map(len, rules.RULES))
  lines = [f'  {name:{width}}  {rule.summary}' for name, rule in rules.RULES.items()]
  return '\n'.join([__doc__, 'RULE is one of', *lines])


if __name__ == '__main__':
  # Flags are not defined at import, because other commands have flags with the same names.
  flags.DEFINE_string(
    'input',
    None,
    "data to split: images, a table, CIFAR's or LEAF's files, a text file of the Extreme"
    ' Classification Repository, or an .npz file (`launch.make_splits --help` has details)',
  )
  flags.DEFINE_string('output', None, 'folder to write the split to')
  flags.DEFINE_string('inspect', None, 'split file to describe')
  flags.DEFINE_integer(
    'seed', 0, 'seed of all random draws', lower_bound=0, upper_bound=hp.INT32_MAX
  )
  app.define_float(
    'test_fraction',
    0.0,
    'share of the examples of every class to hold out as the test set, if DATA has no test set',
    least=0.0,
    most=0.5,
  )
  flags.DEFINE_integer(
    'test_per_class',
    0,
    'number of examples of every class to hold out as the test set, but at most half of the class',
    lower_bound=0,
    upper_bound=hp.INT32_MAX,
  )
  flags.DEFINE_string('label_column', 'class', 'column of a table that names the class of each row')
  flags.DEFINE_string(
    'user_column',
    None,
    'column of a table that names the user of each row. The value NA means that the row has no'
    ' user. Default: user_id, if the table has it',
  )
  flags.DEFINE_string(
    'id_column',
    None,
    'column of a table that has the ids of the rows. Default: image_id if the table has it,'
    ' otherwise the row numbers from 0',
  )
  settings.define_cache_flag()
  settings.define_picture_flag()
  for _name, _meaning in _flags().items():
    flags.DEFINE_string(_name, None, _meaning)
  app.run(main, __doc__, _usage)
