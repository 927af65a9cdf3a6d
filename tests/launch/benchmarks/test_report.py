"""The report: ratios of what agrees, ranges, warnings, tables."""

import json
import re

import pytest

from launch.benchmarks import report
from tests.launch.benchmarks.fake_report import build
from tests.launch.benchmarks.fake_report import written
from tff_xc import errors


def test_ratios_ranges_and_the_rest():
  found = build(a=1.0, b=1.05)
  assert found['ratios'] == {'b/a': 1.75}
  assert found['ranges'] == {'b/a': [1.5, 2.0]}
  assert found['median_seconds'] == {'a': 1.5, 'b': 2.5}
  assert found['peak_mb'] == {'a': 0.002, 'b': 0.002}
  assert found['parts']['a'] == {'all': 1.5, 'half': 0.75}
  assert (found['passes'], found['dropped']) == (2, 0)
  assert found['warnings'] == []
  assert found['notes'] == ['3 clients are few.']
  assert found['settings'] == {'clients': 3, 'sizes': (1, 2)}
  assert found['machine']['cores'] >= 1
  assert json.loads(json.dumps(found))['name'] == 'fake'


def test_what_computes_something_else_is_a_warning_and_no_number():
  found = build(a=1.0, b=2.0, c=1.0)
  assert list(found['ratios']) == ['c/a']
  assert list(found['median_seconds']) == ['a', 'c']
  assert found['check']['b'] == {'loss': 2.0}
  [warning] = found['warnings']
  assert warning.startswith('b does not compute what a does: loss 2 instead')
  assert 'b' not in report.to_text(found).split('contender')[1].split()


def test_too_few_undisturbed_passes_are_said_plainly():
  found = build(passes=2, foreign=[0.0] + 5 * [900.0], a=1.0)
  assert (found['passes'], found['dropped']) == (1, 5)
  [warning] = found['warnings']
  assert 'only 1 of the 2 passes' in warning
  assert '5 were dropped' in warning


def test_the_tables_are_aligned():
  text = report.to_text(build(a=1.0, b=1.0))
  assert text.startswith('fake: clients=3, sizes=1,2\n2 passes, 0 dropped; ')
  assert '\n3 clients are few.\n\ncontender' in text
  assert '\na               1.5        0\n' in text
  assert '\nb/a      1.75   1.5 – 2\n'
  assert '\nhalf            0.75  1.25\n' in text


def test_the_tables_in_markdown_say_how_they_were_made(tmp_path):
  found = written(tmp_path / 'a.json', warnings=['too few'])
  text = report.to_markdown(found)
  assert '| contender | median s | peak MB |\n' in text
  assert '| b/a | 1.75 | 1.5 – 2 |\n' in text
  assert '| half | 0.75 | 1.25 |\n' in text
  *_, below, note, warning = text.splitlines()
  assert below.startswith(
    '`launch.benchmark fake --passes=2`; fake: clients=3, sizes=1,2; 2 passes, '
  )
  assert found['machine']['cpu'] in below
  assert below.endswith('; revision abc, 2020-02-02.')
  assert note == '3 clients are few.'
  assert warning == '**Warning**: too few'


def test_a_short_table_has_the_ratios_or_else_the_seconds(tmp_path):
  found = written(tmp_path / 'a.json')
  short = report.to_markdown(found, is_short=True)
  assert short.startswith('| ratio |')
  assert '| contender |' not in short
  assert '2020-02-02' in short
  short = report.to_markdown(found | {'ratios': {}}, is_short=True)
  assert short.startswith('| contender |')


@pytest.mark.parametrize(
  ('text', 'problem'),
  [
    ('{', 'is no report of a benchmark'),
    ('3', 'is no report of a benchmark'),
    ('{}', 'has no name, command, date'),
  ],
)
def test_another_file_is_no_report(text, problem, tmp_path):
  path = tmp_path / 'a.json'
  path.write_text(text)
  with pytest.raises(errors.InputError, match=re.escape(problem)):
    report.read(path)
  with pytest.raises(errors.InputError, match=r'b\.json is no report'):
    report.read(tmp_path / 'b.json')


@pytest.mark.parametrize(
  ('flags', 'expected'),
  [
    ('fpu avx avx2 avx512f avx512_vnni', ', AVX-512 VNNI'),
    ('fpu avx avx2 avx512f', ', AVX-512'),
    ('fpu avx avx2', ', AVX2'),
    ('fpu avx', ''),
  ],
)
def test_a_processor_is_told_with_its_generation(flags, expected):
  lines = [
    'processor\t: 0',
    'cpu family\t: 25',
    'model\t\t: 1',
    'model name\t: AMD EPYC',
    f'flags\t\t: {flags}',
    '',
    'processor\t: 1',
    'model\t\t: 2',
    'flags\t\t: avx512f',
  ]
  name = report.cpu_name('\n'.join(lines))
  assert name == f'AMD EPYC (family 25, model 1{expected})'


def test_a_machine_without_a_known_processor():
  assert report.cpu_name('') == 'unknown'
