"""Tables of the documentation are written from the results in docs/results."""

import re

import pytest

from launch import compare, document
from tasks.papers import registry, table
from tests.launch import light
from tests.launch.reproduction import small_table
from tests.report import fake_runs
from tff_xc import errors
from tff_xc.measure import targets
from tff_xc.report import tables

FILES = [light.ROOT / 'README.md', *sorted((light.ROOT / 'docs').rglob('*.md'))]


@pytest.mark.parametrize('path', FILES, ids=lambda p: p.name)
def test_the_documentation_is_that_of_its_results(path):
  text = path.read_text(encoding='utf-8')
  assert document.document(path) == text
  # Every block has an end and is read.
  opened = re.findall(r'<!-- (?!end)\w+ ', text)
  assert len(opened) == len(document._BLOCK.findall(text))


def write(path, words, old=''):
  path.write_text(f'# A\n\n<!-- {words} -->\n{old}<!-- end -->\nrest\n')


@pytest.fixture
def runs(tmp_path):
  for seed in (0, 1):
    fake_runs.write_run(tmp_path / 'runs' / f'a{seed}', seed=seed, top1=0.5 + seed / 10)
  fake_runs.write_run(tmp_path / 'runs' / 'b', 'posonly', top1=0.3)
  frame = compare.collect([tmp_path / 'runs'])
  columns = tables.all_columns(targets.parse('top1:0.4'), [tables.column('top1@10')])
  (tmp_path / 'runs.csv').write_text(tables.to_csv(tables.of_methods(frame, columns)))
  return tmp_path


def test_a_table_of_runs(runs):
  path = runs / 'a.md'
  write(path, 'compare runs.csv --columns=top1,top1@10,top1:0.4', 'old\n')
  text = document.document(path)
  assert text.startswith('# A\n\n<!-- compare runs.csv ')
  assert text.endswith('<!-- end -->\nrest\n')
  lines = text.splitlines()
  assert 'top-1 % after 10 rounds' in lines[3]
  [fedss] = [line for line in lines if line.startswith('| `fedss`')]
  assert '| 2 | 55.0 ± 7.1 |' in fedss
  [posonly] = [line for line in lines if line.startswith('| `posonly`')]
  assert posonly.endswith('| >20 |')
  for kept in (text, text.replace('\n', '\r\n')):
    path.write_bytes(kept.encode())
    assert document.document(path) == kept


def test_every_result_has_a_line_and_every_failure_a_cause(tmp_path):
  text = document.document(light.ROOT / 'docs' / 'reproduce.md')
  block = text[text.index('<!-- overview') :].partition('<!-- end -->')[0]
  lines = [line.strip('| ').split(' | ') for line in block.splitlines()[3:]]
  shown = {line[0].strip('`'): line[-1] for line in lines}
  assert [*shown] == [
    name for name, each in registry.RESULTS.items() if not isinstance(each, table.Diagram)
  ]
  for name, says in shown.items():
    verdict, _, cause = says.partition('. ')
    assert bool(cause) != verdict.startswith(('shape', 'reproduced', 'formula')), name
  path = tmp_path / 'page.md'
  small_table.measured(algorithm='fedmlh').write(tmp_path / 'r')
  (tmp_path / 'r' / document.CAUSES).write_text('result,cause\nfedss/none,x\n')
  write(path, 'overview r')
  with pytest.raises(errors.InputError, match='fedss/none'):
    document.document(path)


@pytest.mark.parametrize(
  ('words', 'problem'),
  [
    ('compare none.csv --columns=top1', 'none.csv'),
    ('compare a.md --columns=top1', 'a.md is no table of runs'),
    ('compare runs.csv --columns=top9', 'no column top9'),
    ('compare runs.csv --columns=map@10@7', 'no column map@10@7'),
    ('compare runs.csv --column=top1', 'expected FILE [--columns]'),
    ('compare runs.csv --columns=top1 --paper=x:y', 'no table x'),
    ('compare runs.csv --columns=top1 --paper=fedss/table1:omniglot', "'omniglot'"),
    ('result small fedss/table1', 'nothing was written of fedss/table1'),
    ('result small fedmlh/table9', 'no result'),
    ('verdicts none', 'no result was written'),
    ('audit runs.csv', 'requests_until_90'),
    ('benchmark runs/a0/config.json', 'config.json'),
    ('table ragged.csv', 'it is no table'),
  ],
)
def test_bad_input_is_one_sentence(words, problem, runs):
  path = runs / 'a.md'
  (runs / 'ragged.csv').write_text('a,b\n1\n')
  write(path, words)
  with pytest.raises(errors.InputError, match=re.escape(problem)) as caught:
    document.document(path)
  assert str(path) in str(caught.value)


@pytest.mark.parametrize(
  ('content', 'problem'),
  [
    (b'<!-- verdicts small -->\n', 'begins 1 tables'),
    (b'<!-- verdicts a -->\nkeep me\n<!-- verdicts b -->\n<!-- end -->\n', 'begins 2 tables'),
    (b'\xff\xfe', 'cannot be read'),
  ],
)
def test_a_page_that_would_lose_text_is_refused(content, problem, tmp_path):
  path = tmp_path / 'a.md'
  path.write_bytes(content)
  with pytest.raises(errors.InputError, match=f'a.md {problem}'):
    document.document(path)


def test_the_command_checks_and_writes(tmp_path):
  path = tmp_path / 'a.md'
  (tmp_path / 'a.csv').write_text('a\n1\n')
  write(path, 'table a.csv')
  light.assert_one_sentence(light.call('document', path, '--check'), 'a.md: tables differ')
  assert light.call('document', path).stdout == f'{path}: written\n'
  done = light.call('document', path, '--check')
  assert (done.returncode, done.stdout) == (0, '')
