"""Tables of the documentation are made of the runs beside it."""

import json
import pathlib
import re
import shutil

import pytest

from launch import compared_runs
from launch import document
from launch.benchmarks import report
from launch.reproduction import outcome as outcome_lib
from tasks.papers import registry
from tasks.papers import result
from tests.launch import light
from tests.launch.benchmarks import fakes
from tests.report import fake_runs
from tff_xc import errors

ROOT = pathlib.Path(__file__).parents[2]
FILES = [ROOT / 'README.md', *sorted((ROOT / 'docs').rglob('*.md'))]


@pytest.mark.parametrize('path', FILES, ids=lambda p: p.name)
def test_the_documentation_is_that_of_its_runs(path):
  assert document.document(path) == path.read_text(encoding='utf-8')


def test_every_block_is_closed_and_read():
  for path in FILES:
    text = path.read_text(encoding='utf-8')
    opened = re.findall(r'<!-- (?!end)\w+ ', text)
    assert len(opened) == text.count('<!-- end -->')
    assert len(opened) == len(document._BLOCK.findall(text))


def write(path, words, old=''):
  path.write_text(f'# A\n\n<!-- {words} -->\n{old}<!-- end -->\nrest\n')


@pytest.fixture
def runs(tmp_path):
  for seed in (0, 1):
    folder = tmp_path / 'runs' / f'a{seed}'
    fake_runs.write_run(folder, seed=seed, top1=0.5 + seed / 10)
  fake_runs.write_run(tmp_path / 'runs' / 'b', 'posonly', top1=0.3)
  return tmp_path


def test_a_table_of_runs(runs):
  path = runs / 'a.md'
  write(path, 'compare runs --columns=top1,top1@10,top1:0.4', 'old\n')
  text = document.document(path)
  assert text.startswith('# A\n\n<!-- compare runs ')
  assert text.endswith('<!-- end -->\nrest\n')
  lines = text.splitlines()
  assert 'top-1 % after 10 rounds' in lines[3]
  [fedss] = [line for line in lines if line.startswith('| `fedss')]
  assert '| 2 | 55.0 ± 7.1 |' in fedss
  [posonly] = [line for line in lines if line.startswith('| `posonly')]
  assert posonly.endswith('| >20 |')
  path.write_text(text)
  assert document.document(path) == text


def test_a_score_is_related_to_that_of_other_runs(runs):
  path = runs / 'a.md'
  words = '--columns=relative_top1 --relative_to=runs/b'
  write(path, f'compare runs/a0 runs/a1 {words}')
  text = document.document(path)
  assert '| relative top-1 % |' in text
  assert '| 2 | 183.3 ± 23.6 |' in text  # 0.5 and 0.6 over 0.3.


def test_a_score_with_an_at_is_shown_at_a_round():
  assert compared_runs._column('p@1@100').heading == 'P@1 % after 100 rounds'
  assert compared_runs._column('p@1').heading == 'P@1 %'


def test_a_table_of_the_rounds_that_runs_chose(tmp_path):
  path = tmp_path / 'a.md'
  words = '--columns=best.round,best.top1,best.bytes_down'
  for seed, (number, top1) in enumerate([(10, 0.4), (20, 0.6)]):
    folder = tmp_path / 'runs' / f'a{seed}'
    fake_runs.write_run(folder, seed=seed, top1=0.9)
    summary = json.loads((folder / 'summary.json').read_text())
    chosen = {'round': number, 'top1': top1, 'bytes_down': number * 2**20}
    summary['best_round'] = chosen
    (folder / 'summary.json').write_text(json.dumps(summary))
  write(path, f'compare runs {words}')
  lines = document.document(path).splitlines()
  assert lines[3].endswith(
    '| best round | top-1 %, best round | MiB sent down until then |'
  )
  assert lines[5].endswith('| 2 | 15 ± 7 | 50.0 ± 14.1 | 15 ± 7 |')
  fake_runs.write_run(tmp_path / 'runs' / 'b', 'posonly')  # It chose none.
  assert '| 1 | – | – | – |' in document.document(path)


def test_published_numbers_stand_beside(runs):
  path = runs / 'a.md'
  paper = 'fedss/table1:landmarks-user-160k'
  write(path, f'compare runs --columns=top1 --paper={paper}')
  lines = document.document(path).splitlines()
  assert lines[3].endswith('| paper: top-1 |')
  [posonly] = [line for line in lines if line.startswith('| `posonly')]
  assert posonly.endswith('| 30.0 | 18.7 ± 0.4 |')
  # The paper has several of FedSS, none with the settings of these runs.
  [fedss] = [line for line in lines if line.startswith('| `fedss')]
  assert fedss.endswith('| – |')


def test_a_kept_table(tmp_path):
  path = tmp_path / 'a.md'
  write(path, 'table a.csv')
  (tmp_path / 'a.csv').write_text('fault,s\n"killed, late",1.5\n')
  lines = document.document(path).splitlines()
  assert lines[3:6] == [
    '| fault | s |',
    '| --- | ---: |',
    '| killed, late | 1.5 |',
  ]
  for content in ('a,b\n1\n', ''):
    (tmp_path / 'a.csv').write_text(content)
    with pytest.raises(errors.InputError, match='it is no table'):
      document.document(path)
  (tmp_path / 'a.csv').unlink()
  with pytest.raises(errors.InputError, match='No such file'):
    document.document(path)


def test_a_result(tmp_path):
  cells = outcome_lib.Cells('', ('a', 'b'), (('1', '2|3'),))
  outcome_lib.write(
    outcome_lib.Outcome(
      name='fedmlh/table5',
      scale='small',
      verdict=outcome_lib.Verdict.REPRODUCED,
      why='all is equal',
      tables=(cells, cells._replace(title='Cost')),
    ),
    tmp_path / 'small',
  )
  path = tmp_path / 'a.md'
  write(path, 'result small/fedmlh/table5')
  text = document.document(path)
  assert '| 1 | 2\\|3 |' in text
  assert '**Cost**' in text
  assert '**reproduced**: all is equal.' in text
  write(path, 'result small/fedmlh/table5 --short')
  text = document.document(path)
  assert '| 1 | 2\\|3 |' in text
  assert '**Cost**' not in text
  assert '**reproduced**: all is equal.' in text


def test_verdicts_are_counted_by_paper(tmp_path):
  kinds = outcome_lib.Verdict
  for name, verdict in (
    ('fedmlh/table4', kinds.SHAPE),
    ('fedmlh/table5', kinds.REPRODUCED),
    ('fedmlh/table3', kinds.NOT),
    ('fedmlh/table6', kinds.NOT_RUN),
  ):
    kept = outcome_lib.Outcome(
      name=name, scale='small', verdict=verdict, why='w'
    )
    outcome_lib.write(kept, tmp_path / 'small')
  path = tmp_path / 'a.md'
  write(path, 'verdicts small')
  lines = document.document(path).splitlines()[3:-2]
  table = [[cell.strip() for cell in line.split('|')[1:-1]] for line in lines]
  assert table[0] == ['paper', *map(str, kinds), 'all']
  counts = {paper: list(map(int, found)) for paper, *found in table[2:]}
  results = [f for f in registry.RESULTS.values() if f.paper == 'FedMLH']
  diagrams = sum(isinstance(f, result.Diagram) for f in results)
  assert diagrams == 1
  others = len(results) - 3 - diagrams
  assert counts['FedMLH'] == [1, 1, 1, others, diagrams, len(results)]
  assert counts['FedSS'][:3] == [0, 0, 0]
  assert counts['all'][-1] == len(registry.RESULTS)
  assert counts['all'][:3] == [1, 1, 1]
  assert all(sum(found[:-1]) == found[-1] for found in counts.values())


def test_a_damaged_benchmark_is_one_sentence(tmp_path):
  fakes.written(tmp_path / 'fake.json', machine='a laptop')
  write(tmp_path / 'a.md', 'benchmark fake.json')
  with pytest.raises(errors.InputError, match='it is no report of a benchmark'):
    document.document(tmp_path / 'a.md')


def test_a_benchmark(tmp_path):
  folder = tmp_path / 'results'
  folder.mkdir()
  found = fakes.written(folder / 'fake.json')
  path = tmp_path / 'a.md'
  write(path, 'benchmark results/fake.json')
  text = document.document(path)
  assert report.to_markdown(found) in text
  path.write_text(text)
  assert document.document(path) == text
  # Either may change: a number of the file, or of the page.
  fakes.written(folder / 'fake.json', ratios={'b/a': 1.76})
  assert '| b/a | 1.76 |' in document.document(path)
  assert document.document(path) != text
  fakes.written(folder / 'fake.json')
  path.write_text(text.replace('1.75', '1.74'))
  assert document.document(path) == text
  write(path, 'benchmark results/fake.json --short')
  assert '| contender |' not in document.document(path)


@pytest.mark.parametrize(
  ('words', 'problem'),
  [
    ('compare none --columns=top1', 'none is no run directory'),
    ('compare runs --columns=top9', 'there is no column top9; there are'),
    ('compare runs --columns=best.top9', 'top9 is no score'),
    ('compare runs --column=top1', '--column=top1 is none of --columns='),
    ('compare runs --columns=top1 --paper=x:y', 'there is no table x'),
    (
      'compare runs --columns=top1 --paper=fedss/table1:omniglot',
      "fedss/table1 has no results on 'omniglot'",
    ),
    ('compare runs --columns=top1@7', 'no scores of round 7'),
    ('compare runs --columns=relative_top1', 'no column relative_top1'),
    (
      'compare runs --columns=relative_top1 --relative_to=runs',
      'is 2 configurations',
    ),
    ('result small/fedss/table1', 'nothing was written of fedss/table1'),
    ('result --short', 'expected one path, not 0'),
    ('verdicts a b', 'expected one path, not 2'),
    ('verdicts none', 'none is no directory'),
    ('benchmark none.json', 'none.json is no report of a benchmark'),
    ('benchmark runs/a0/config.json', 'has no name, command, date'),
    ('benchmark a b', 'expected one path, not 2'),
  ],
)
def test_bad_input_is_one_sentence(words, problem, runs):
  path = runs / 'a.md'
  write(path, words)
  with pytest.raises(errors.InputError, match=re.escape(problem)) as caught:
    document.document(path)
  assert str(path) in str(caught.value)


@pytest.mark.parametrize(
  'text',
  [
    '<!-- verdicts small -->\n',
    '<!-- verdicts a -->\nkeep me\n<!-- verdicts b -->\n<!-- end -->\n',
  ],
)
def test_a_table_without_an_end_is_refused(text, tmp_path):
  path = tmp_path / 'a.md'
  path.write_text(text)
  with pytest.raises(
    errors.InputError, match=r'a.md begins \d tables and ends'
  ):
    document.document(path)


@pytest.mark.parametrize(
  ('words', 'told'),
  [
    ('verdict small', 'has 1 lines <!-- end --> for 0 tables; a table begins'),
    ('verdicts small', 'no result was written to'),
    ('result small', 'expected DIRECTORY/PAPER/TABLE'),
  ],
)
def test_wrong_words_are_refused(words, told, tmp_path):
  (tmp_path / 'small').mkdir()
  path = tmp_path / 'a.md'
  write(path, words)
  with pytest.raises(errors.InputError, match=re.escape(told)):
    document.document(path)


def test_a_page_in_another_coding_is_refused(tmp_path):
  path = tmp_path / 'a.md'
  path.write_bytes(b'\xff\xfe')
  with pytest.raises(errors.InputError, match=r'a.md is no text in UTF-8'):
    document.document(path)


def test_a_page_keeps_its_line_ends(runs):
  path = runs / 'a.md'
  write(path, 'compare runs --columns=top1', 'old\n')
  expected = document.document(path)
  path.write_bytes(path.read_bytes().replace(b'\n', b'\r\n'))
  assert document.document(path) == expected.replace('\n', '\r\n')


def test_a_page_that_cannot_be_written_stays(tmp_path, monkeypatch):
  path = tmp_path / 'a.md'
  path.write_text('as it was')
  write_bytes = pathlib.Path.write_bytes

  def full(self, data):
    write_bytes(self, data[:1])
    raise OSError(28, 'No space left on device')

  monkeypatch.setattr(pathlib.Path, 'write_bytes', full)
  with pytest.raises(
    errors.InputError, match=r'a.md cannot be written \(No sp'
  ):
    document._write(path, 'new')
  assert path.read_text() == 'as it was'
  assert list(tmp_path.iterdir()) == [path]


def test_the_command_checks_and_writes(tmp_path):
  path = tmp_path / 'a.md'
  kept = ROOT / 'docs/results/small/fedmlh/table5'
  shutil.copytree(kept, tmp_path / 'small/fedmlh/table5')
  write(path, 'verdicts small')
  done = light.call('document', path, '--check')
  assert done.returncode == 2
  assert (
    'a.md: tables differ from their runs; run launch.document' in done.stderr
  )
  done = light.call('document', path)
  assert done.stdout == f'{path}: written\n'
  done = light.call('document', path, '--check')
  assert (done.returncode, done.stdout) == (0, '')
  light.assert_one_sentence(light.call('document'), 'no file was named')
  light.assert_one_sentence(light.call('document', tmp_path / 'b'), 'cannot be')
