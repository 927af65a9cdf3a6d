"""Shows a plan of `launch.plan` as sentences, tables and a picture of the bytes."""

import pathlib
import shlex
import textwrap
from collections.abc import Mapping

from launch import advice
from tasks import configuration
from tff_xc import files, precision, wording
from tff_xc.report import pictures, text_table

_MEGA = 10**6


def to_text(found: Mapping, width: int) -> str:
  """Returns a plan as sentences and tables."""
  return '\n'.join(
    part(found, width) for part in (_of_data, _of_algorithms, _of_rounds, _of_starts)
  )


def _of_data(found: Mapping, width: int) -> str:
  data = found['data']
  weights = data['encoder_parameters']
  rows = [
    ['data and model', f'--task={found["task"]}'],
    ['classes', f'{data["classes"]:,}'],
    ['clients', f'{data["clients"]:,}'],
    ['examples', f'{data["examples"]:,}'],
    ['examples per client', _range(data['examples_per_client'])],
    ['classes per client', _range(data['classes_per_client'])],
    ['clients per class', _range(data['clients_per_class'])],
    [
      'skew of the clients',
      f'{data["emd"]:.2f} (EMD: 0 if all clients have the same share of each class, 2 if'
      ' no two clients share a class)',
    ],
    ['test examples', f'{data["test_examples"]:,}'],
    ['encoder', f'{weights:,} weights ({wording.human_bytes(4 * weights)})'],
    [
      'class table',
      f'{wording.human_bytes(data["class_table_bytes"])},'
      f' {data["class_table_share"]:.0%} of the model; a class row has'
      f' {data["embedding_dim"]:,} numbers',
    ],
  ]
  rows += [['warning', text] for text in data['check']]
  return text_table.to_text(rows, (0, 1), width)


def _range(of: Mapping[str, float]) -> str:
  if of['least'] == of['most']:
    return f'{of["mean"]:,.0f}'
  return f'{of["mean"]:,.1f} on average ({of["least"]:,.0f} to {of["most"]:,.0f})'


def _filled(text: str, width: int, first: str = '', others: str = '', end: str = '\n') -> str:
  """Wraps text into lines that end with `end`.

  `first` indents the first line, and `others` the other lines.
  """
  lines = textwrap.wrap(
    text,
    width - len(end) + 1,
    initial_indent=first,
    subsequent_indent=others,
    break_long_words=False,
    break_on_hyphens=False,
  )
  return end.join(lines) + '\n'


def _of_algorithms(found: Mapping, width: int) -> str:
  size = wording.human_bytes
  text = 'What a client receives (down) and sends (up) in a round, on average'
  if found['most_bytes']:
    text += f'. The limit is {size(found["most_bytes"])} in each direction'
  heading = ['algorithm', 'class rows', 'down', 'up', 'numbers', 'model']
  heading += ['on a client', 'memory here', 's / round']
  is_timed = any('seconds_per_round' in line for line in found['algorithms'])
  rows, why = [heading if is_timed else heading[:-1]], {}
  for line in found['algorithms']:
    if line['why_not']:
      why.setdefault(line['why_not'], []).append(line['algorithm'])
      continue
    cells = [line['algorithm'], f'{line["class_rows"]:,.0f}']
    cells += [size(line[f'bytes_{way}']) if line['bytes_down'] else '–' for way in ('down', 'up')]
    cells.append(line['message_precision'] or precision.FLOAT32)
    cells += [size(line[name]) for name in ('model_bytes', 'client_memory_bytes', 'memory_bytes')]
    rows.append([*cells, f'{line["seconds_per_round"]:.2f}'] if is_timed else cells)
  text = _filled(f'{text}.', width) + text_table.to_text(rows)
  text += _filled(
    'numbers: the number format of messages. on a client: the size of the class rows, the encoder'
    ' and their gradients. memory here: the size of the model, the state of the server, and the'
    ' clients that train at the same time. Data and activations need additional memory. The class'
    ' rows of fedmlh are the rows of its hash tables.',
    width,
  )
  for reason, names in why.items():
    text += _filled(f'Does not fit: {", ".join(names)}: {reason}', width, '', '  ')
  return text


def _of_rounds(found: Mapping, width: int) -> str:
  of = found['rounds']
  (few, many), (first, last) = advice.VISITS, of['rounds_for_visits']
  text = (
    f'Rounds: in {wording.count(of["rounds"], "round")}'
    f' ({"as given" if of["is_given"] else "the default"}) of'
    f' {wording.count(of["clients_per_round"], "client")}, a client participates'
    f' {of["visits_of_a_client"]:,.2f} times on average, and a class'
    f' {of["visits_of_a_class"]:,.2f} times. A client participates {few} times in'
    f' {first:,} rounds, and {many} times in {last:,}. On 2,028 classes, FedSS scored 32 % when'
    ' clients had participated 0.6 times, 94 % after 3 times and 96 % after 6 times'
    ' (docs/choosing.md).'
  )
  if of['visits_of_a_client'] < configuration.FEW_VISITS:
    text += (
      f' Most class rows hardly learn if clients participate fewer than {configuration.FEW_VISITS}'
      ' times: raise --rounds or --clients_per_round.'
    )
  return _filled(text, width)


def _of_starts(found: Mapping, width: int) -> str:
  if not found['starts']:
    return _filled(f'No recommended algorithm fits. {found["why_no_start"]}.', width)
  text, indent = 'Start with:\n', ' ' * 4
  for number, start in enumerate(found['starts'], 1):
    down, up = (wording.human_bytes(start[f'bytes_{way}']) for way in ('down', 'up'))
    drawn = start['negatives']
    negatives = f', {wording.count(drawn, "negative")}' if drawn else ''
    text += _filled(
      f'{number}. {start["algorithm"]}, {start["rounds"]:,} rounds{negatives},'
      f' {down} down and {up} up. {start["why"]}',
      width,
      ' ',
      indent,
    )
    told = 'We have not measured this algorithm in such a case.'
    if start['evidence']:
      told = f'Measured on {start["evidence"]}. See {start["page"]}.'
      if not start['is_near']:
        told += ' Your sizes differ from these by more than a factor of 4.'
      if drawn and found.get('most_bytes'):
        told += ' The number of negatives may have been different.'
    # A line break within quotes would change the command.
    words = (w.replace(' ', '\0') for w in map(shlex.quote, shlex.split(start['command'])))
    command = _filled(' '.join(words), width, indent, f'{indent}  ', ' \\\n')
    text += command.replace('\0', ' ') + _filled(told, width, indent, indent)
  return text


def write(found: Mapping, folder: str) -> str:
  """Writes plan.json and plan.png into a folder; returns a line that names them."""
  path = pathlib.Path(folder)
  figure, [ax] = pictures.panels(1, 1, (7, 5))
  lines = [line for line in found['algorithms'] if line.get('bytes_down')]
  rows, places = [line['class_rows'] for line in lines], {}
  for way, marker in (('down', 'o'), ('up', '^')):
    sent = [line[f'bytes_{way}'] / _MEGA for line in lines]
    ax.scatter(rows, sent, marker=marker, label=way, alpha=0.7)
  for line in lines:  # Algorithms with equal sizes share an annotation.
    place = line['class_rows'], float(f'{line["bytes_down"] / _MEGA:.2g}')
    places.setdefault(place, []).append(line['algorithm'])
  for place, (name, *others) in places.items():
    more = f' and {len(others)} more' if others else ''
    # Names of neighbours overlap if they are not slanted.
    ax.annotate(f'  {name}{more}', place, fontsize=7, rotation=35, rotation_mode='anchor')
  if found['most_bytes']:
    ax.axhline(found['most_bytes'] / _MEGA, color='black', ls='--', label='limit')
  ax.set_xscale('log')
  ax.margins(x=0.25, y=0.2)  # Leave space for the names.
  pictures.label(
    ax,
    f'Messages of a client in a round, --task={found["task"]}',
    'class rows requested',
    'MB (10^6 bytes)',
  )
  ax.legend()
  with files.folder(path):
    files.write_json(path / 'plan.json', found)
    pictures.save(figure, path / 'plan.png')
  return f'written to {path}: plan.json, plan.png\n'
