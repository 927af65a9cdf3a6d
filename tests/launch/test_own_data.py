"""The user's own data on the command line: the examples in docs, and wrong flags."""

import itertools
import os
import re
import shlex

import pandas as pd
import pytest

from launch import compare, evaluate, train
from tasks import registry
from tests import documents, processes
from tests.datasets import images_on_disk
from tests.launch import flag_values, light, own_examples
from tff_xc import errors
from tff_xc.runtime import registry as runtimes

OWN = documents.page('your_own')
# The network is smaller, and all other settings are those of the page.
SMALLER = {
  'images': ('image_size=16',),
  'table': ('hidden_dim=4',),
  'sparse-text': ('hidden_dim=4', 'feature_dim=4'),
  'sparse-text-sets': ('hidden_dim=4',),
}


@pytest.fixture
def here(in_process, built_once, tmp_path, monkeypatch):
  """Runs in an empty directory, in this process."""
  monkeypatch.chdir(tmp_path)
  monkeypatch.setattr(runtimes, 'install', lambda *_, **__: in_process)
  return tmp_path


def run(line):
  """Runs `launch.train` with small settings, or `launch.compare`."""
  words = shlex.split(line.replace('\\\n', ' '))
  command, *given = words[words.index('-m') + 1 :]
  if command == 'launch.compare':
    return compare.compare(given)
  [task] = [w.partition('=')[2] for w in given if w.startswith('--task=')]
  small = ['rounds=2', 'eval_every=2', 'embedding_dim=4', *SMALLER[task]]
  if task == 'sparse-text-sets':
    small.remove('embedding_dim=4')
  return train.run(*flag_values.resolved([*given, *(f'--{s}' for s in small)]))


def commands(block):
  """Returns the commands of a code block."""
  return re.split(r'\n(?=\.venv)', block.strip())


# The commands of the first sections, grouped by data set. Another test covers the path to a
# comparison.
EXAMPLES = [
  commands(block)
  for block in documents.code(OWN[OWN.index('### Formats and splits') : OWN.index('## Splits of')])
]
MADE_BY = [
  own_examples.photos,
  own_examples.photos,
  own_examples.npz,
  own_examples.items,
  own_examples.embeddings,
  own_examples.text,
]


@pytest.mark.slow
@pytest.mark.parametrize('number', range(6))
def test_the_examples_run(number, here, capsys):
  assert len(EXAMPLES) == len(MADE_BY)
  MADE_BY[number](here)
  for command in EXAMPLES[number]:
    result = run(command)
    if isinstance(result, dict):
      assert result['rounds'] == 2
      held_out = 'mine.npz' not in command
      expected = {'top1', 'p@1', 'pc_mean'} if held_out else {'train_top1'}
      assert expected & set(result['final'])
    else:
      assert 'written to' in result
  said = capsys.readouterr().err
  assert ('1 of 39 images cannot be read' in said) == (number == 0)


PATHS = {
  'your_own': documents.section(OWN, '## Splits of your data'),
  'photographs': documents.section(OWN, '### From a folder to a comparison'),
}


@pytest.mark.slow
@pytest.mark.parametrize('name', PATHS)
def test_the_path_from_a_split_to_a_comparison(name, here):
  # Use as few images as a user may have in a first try.
  kinds = ('cat', 'dog', 'emu', 'fox')
  images_on_disk.classes(here / 'photos', dict.fromkeys(kinds, 15))
  rows = [f'r{i},u{i % 7},i{i % 5},{i % 5 + i / 99}' for i in range(60)]
  (here / 'ratings.csv').write_text('\n'.join(['row,user,item,price', *rows]))
  names = [f'{name}/{i}.jpg' for name in kinds for i in range(15)]
  rows = [f'{name},u{i % 6},{name[:3]}' for i, name in enumerate(names)]
  (here / 'labels.csv').write_text('\n'.join(['file,user,label', *rows]))
  compared = 0
  for command in itertools.chain(*map(commands, documents.code(PATHS[name]))):
    words = shlex.split(command.replace('\\\n', ' '))[2:]
    if words[0] == 'launch.make_splits':
      if re.search('photos|ratings|labels', command):
        processes.python(
          '-m', *words, env={**os.environ, 'PYTHONPATH': str(light.ROOT)}, check=True
        )
    elif words[0] != 'launch.plan':  # `tests/launch/test_plan.py` runs this command.
      result = run(command)
      if isinstance(result, dict):
        assert result['emd'] > 0 and 'top1' in result['final']
      else:
        compared += 1
        assert 'fedss' in result and ('fedvc' in result or 'fedavg' in result)
  assert compared == 1
  assert (here / 'runs' / 'users').exists() == (name == 'photographs')


def test_training_says_what_the_images_are(tmp_path, capsys):
  images = registry.get('images')
  path = str(own_examples.npz(tmp_path).rename(tmp_path / 'MINE.NPZ'))
  defaults = images.option_values()
  images.load(path, defaults)
  assert '20 images of 4 classes (0, 1, 2, ...), no test' in capsys.readouterr().err
  assert images.known_classes({}, path) == 4
  with pytest.raises(errors.InputError, match='leave out --corrupt'):
    images.load(path, defaults | {'corrupt': 'fail'})


@pytest.mark.slow
def test_names_of_classes_are_kept_and_shown(here):
  own_examples.photos(here)
  command = EXAMPLES[1][0]

  def names_of(run):
    return [*pd.read_csv(run / 'classes.csv')['name']]

  run(command)
  assert names_of(here / 'runs' / 'tar' / 'fedavg') == [0, 1, 2]
  pd.DataFrame({'class': [0, 1, 2], 'name': ['cat', 'dog', 'emu']}).to_csv(
    'classes.csv', index=False
  )
  with pytest.raises(errors.InputError, match='other data: names_checksum was'):
    run(command)
  run(command.replace('runs/tar', 'runs/named'))
  named = here / 'runs' / 'named' / 'fedavg'
  assert names_of(named) == ['cat', 'dog', 'emu']
  evaluate.run(str(named))
  heading = (named / 'confusion.csv').read_text().splitlines()[0]
  # The name comes from user_id in test.csv.
  assert heading.startswith('class of the test examples of')
  assert heading.endswith(',emu,other')
