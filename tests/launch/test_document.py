"""Tables of the documentation are made of the results beside it."""

import json
import pathlib
import re

import numpy as np
import pandas as pd
import pytest

from launch import compare, document
from tasks.papers import registry, table
from tests.launch import light
from tests.launch.reproduction import small_table
from tests.report import fake_runs
from tff_xc import errors
from tff_xc.measure import targets
from tff_xc.report import audit, tables

ROOT = pathlib.Path(__file__).parents[2]
FILES = [ROOT / 'README.md', *sorted((ROOT / 'docs').rglob('*.md'))]


@pytest.mark.parametrize('path', FILES, ids=lambda p: p.name)
def test_the_documentation_is_that_of_its_results(path):
  text = path.read_text(encoding='utf-8')
  assert document.document(path) == text
  # Every block is closed and read.
  opened = re.findall(r'<!-- (?!end)\w+ ', text)
  assert len(opened) == len(document._BLOCK.findall(text))


def write(path, words, old=''):
  path.write_text(f'# A\n\n<!-- {words} -->\n{old}<!-- end -->\nrest\n')


@pytest.fixture
def runs(tmp_path):
  for seed in (0, 1):
    folder = tmp_path / 'runs' / f'a{seed}'
    fake_runs.write_run(folder, seed=seed, top1=0.5 + seed / 10)
  fake_runs.write_run(tmp_path / 'runs' / 'b', 'posonly', top1=0.3)
  frame = compare.collect([tmp_path / 'runs'])
  columns = tables.all_columns(targets.parse('top1:0.4'), [tables.column('top1@10')])
  of_runs = tables.of_methods(frame, columns)
  (tmp_path / 'runs.csv').write_text(tables.to_csv(of_runs))
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
  path.write_text(text)
  assert document.document(path) == text


def test_published_numbers_stand_beside(runs):
  path = runs / 'a.md'
  paper = 'fedss/table1:landmarks-user-160k'
  write(path, f'compare runs.csv --columns=top1 --paper={paper}')
  lines = document.document(path).splitlines()
  assert lines[3].endswith('| paper: top-1 |')
  [posonly] = [line for line in lines if line.startswith('| `posonly')]
  assert posonly.endswith('| 30.0 | 18.7 ± 0.4 |')
  # The paper has several of FedSS, none with the settings of these runs.
  [fedss] = [line for line in lines if line.startswith('| `fedss')]
  assert fedss.endswith('| – |')


def test_results_and_the_numbers_of_their_verdicts(tmp_path):
  path = tmp_path / 'a.md'
  small_table.measured(algorithm='fedmlh').write(tmp_path / 'r')
  write(path, f'result r {small_table.NAME} --short')
  assert '| fedmlh | 60.0 | 59.3 |' in document.document(path)
  write(path, 'result r fedmlh/table5')  # A formula needs no lines.
  assert '| Eurlex | fedmlh |' in document.document(path)
  write(path, 'verdicts r')
  lines = [line.split('|')[1:-1] for line in document.document(path).splitlines()]
  of = {each[0].strip(): [*map(int, each[1:])] for each in lines[5:-2]}
  assert of['FedMLH'][3] == 1
  assert of['all'][-1] == len(registry.RESULTS)
  assert all(sum(found[:-1]) == found[-1] for found in of.values())


def test_every_result_has_a_line_and_every_failure_a_cause(tmp_path):
  text = document.document(ROOT / 'docs' / 'reproduce.md')
  block = text[text.index('<!-- overview') :].partition('<!-- end -->')[0]
  lines = [line.strip('| ').split(' | ') for line in block.splitlines()[3:]]
  shown = {line[0].strip('`'): line[-1] for line in lines}
  results = registry.RESULTS.items()
  assert [*shown] == [name for name, each in results if not isinstance(each, table.Diagram)]
  for name, says in shown.items():
    verdict, _, cause = says.partition('. ')
    assert bool(cause) != verdict.startswith(('shape', 'reproduced', 'formula')), name
  path = tmp_path / 'page.md'
  small_table.measured(algorithm='fedmlh').write(tmp_path / 'r')
  (tmp_path / 'r' / document.CAUSES).write_text('result,cause\nfedss/none,x\n')
  write(path, 'overview r')
  with pytest.raises(errors.InputError, match='fedss/none'):
    document.document(path)


def test_an_audit(tmp_path):
  path = tmp_path / 'a.md'
  told = {'auc': 0.9, 'posterior': 0.25, 'known': 0.0, 'precision': np.nan}
  line = {'seed': 0, 'schedule': 'sticky', 'rounds_between': 3, **told}
  requests = pd.DataFrame([{**line, 'requests': r} for r in (1, 2)])
  scores = pd.DataFrame({'schedule': ['sticky'] * 2, 'score': [0.5, 0.6]})
  audit.of_schedules(requests, scores).to_csv(tmp_path / 'a.csv')
  write(path, 'audit a.csv --metric=top1')
  [line] = [s for s in document.document(path).splitlines() if 'sticky' in s]
  assert '| 0.900 0.900 | 0.25 0.25 | >2 |' in line
  assert line.endswith('| 55.0 ± 7.1 |')
  update = {'schedule': 'sticky', 'seen': 'rows as sent', 'by': 'size'}
  aucs = [{**update, 'auc': 0.5}, {**update, 'auc': 0.75}]  # Two seeds.
  pd.DataFrame(aucs).to_csv(tmp_path / 'updates.csv')
  write(path, 'audit updates.csv')
  assert '| rows as sent | size | 0.625 |' in document.document(path)


def test_a_kept_table(tmp_path):
  path = tmp_path / 'a.md'
  write(path, 'table a.csv')
  (tmp_path / 'a.csv').write_text('fault,s\n"killed, late",1.5\n')
  lines = document.document(path).splitlines()
  assert lines[3:6] == ['| fault | s |', '| --- | ---: |', '| killed, late | 1.5 |']
  (tmp_path / 'a.csv').write_text('a,b\n1\n')
  with pytest.raises(errors.InputError, match='it is no table'):
    document.document(path)


def test_a_benchmark(tmp_path):
  found = json.loads((ROOT / 'docs/results/benchmarks/start.json').read_text())
  given, path = tmp_path / 'b.json', tmp_path / 'a.md'
  given.write_text(json.dumps(found))
  write(path, 'benchmark b.json')
  text = document.document(path)
  assert '| contender | median s | peak MB |' in text
  assert '| worker/in_process | 1.1 | 1.08 – 1.13 |' in text
  given.write_text(json.dumps(found | {'warnings': ['too few']}))
  write(path, 'benchmark b.json --short')
  text = document.document(path)
  assert '**Warning**: too few' in text and '| contender |' not in text


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
  ],
)
def test_bad_input_is_one_sentence(words, problem, runs):
  path = runs / 'a.md'
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
  light.assert_one_sentence(light.call('document'), 'no file was named')
