"""The flags, files, tests, pages and settings that README and docs name exist."""

import re

from tests import documents
from tests.launch import flag_values, light

# Other tests run the commands of these tasks on the user's own data.
OWN = ('images', 'table', 'sparse-text', 'sparse-text-sets')


def test_every_command_and_flag_named_exists():
  text, help_text = documents.everything(), ''
  commands = set(re.findall(r'python -m launch\.(\w+)[` ]', text))
  assert len(commands) >= 7
  for command in commands:
    done = light.call(command, '--help=all', COLUMNS='200')
    assert done.returncode == 0, done.stderr
    help_text += done.stdout
  named = set(re.findall(r'`--(\w+)', text)) | set(re.findall(r'--(\w+)=', text))
  assert len(named) > 100
  for flag in named:
    known = f'--{flag}' in help_text or f'--[no]{flag}' in help_text
    assert known or flag in ('flagfile', 'help'), flag


def test_every_file_named_exists():
  for path in re.findall(
    r'`((?:tff_xc|tasks|launch|docs|datasets|tests)/[\w/.]+\w)`', documents.everything()
  ):
    assert (documents.ROOT / path).exists(), path


def test_every_test_named_exists():
  """Checks lists of tests in docs, which have the form `FILE`: (`test`, `test`)."""
  for path in documents.PAGES:
    parts = re.split(r'`(tests/[\w/]+\.py)`', path.read_text())
    for file, after in zip(parts[1::2], parts[2::2], strict=True):
      source = (documents.ROOT / file).read_text()
      for name in re.findall(r'`(test_\w+)`', after):
        assert f'def {name}(' in source, (path, file, name)


def test_every_link_and_anchor_exists():
  for path in documents.FILES:
    for link in documents.links(path.read_text()):
      if '://' in link:
        continue
      target, _, anchor = link.partition('#')
      found = (path.parent / target).resolve() if target else path
      assert found.exists(), f'{path}: {link}'
      if anchor:
        known = documents.anchors(found.read_text())
        assert anchor in known, f'{path}: {link}'


def test_every_training_command_resolves():
  """Checks that task, algorithm and flags fit each other. The data may be missing."""
  resolved = 0
  for path in documents.FILES:
    for command, *given in documents.commands(path.read_text()):
      own = any(f'--task={task}' in given for task in OWN)
      if command == 'launch.train' and not own:
        kept = [flag for flag in given if flag != '--data_dir=DIR']
        flag_values.resolved(kept)
        resolved += 1
  assert resolved >= 8
