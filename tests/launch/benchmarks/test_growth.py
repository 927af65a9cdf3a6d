"""Exponents of growth, the sizes that grow, their table and their picture."""

import json
import os
import subprocess
import sys

import pytest

from launch.benchmarks import catalog
from launch.benchmarks import growth
from launch.benchmarks import report
from tests.launch import light
from tests.launch.benchmarks import fakes
from tff_xc.report import pictures

GROWTH = catalog.get('growth')


def values(of, *sizes):
  return {size: of(size) for size in sizes}


def test_the_exponent_is_of_what_is_added_to_the_smallest():
  decades = 1, 10, 100, 1000, 10_000
  of = lambda function: report.exponent(values(function, *decades))
  assert of(lambda s: 3 * s) == pytest.approx(1)
  # A constant part hides nothing: sizes that are not above it are left out.
  assert of(lambda s: 500 + 2 * s) == pytest.approx(1)
  assert of(lambda s: 50 + s**2) == pytest.approx(2, abs=0.03)
  assert of(lambda s: 20 + s**0.5) == pytest.approx(0.5, abs=0.05)
  noise = {1: 1.02, 10: 0.98, 100: 1.4, 1000: 10, 10_000: 100}
  assert report.exponent(noise) == pytest.approx(1.04, abs=0.01)


def test_what_does_not_grow_has_no_exponent():
  assert report.exponent(values(lambda s: 7.0, 1, 10, 100)) is None
  assert report.exponent({1: 1.0, 10: 1.2, 100: 2.0}) is None
  assert report.exponent({1: 5.0}) is None


def test_values_are_by_name_and_ascending_size():
  found = report.by_size({'a@10': 2, 'b@3': 5, 'a@9': 1, 'c': 4, 'd@2x3': 6})
  assert found == {'a': {9: 1, 10: 2}, 'b': {3: 5}}
  assert list(found['a']) == [9, 10]


def test_every_size_grows_alone_on_all_threads_and_on_one(monkeypatch):
  memory = lambda pages: monkeypatch.setattr(
    os, 'sysconf', {'SC_PAGE_SIZE': 4096, 'SC_PHYS_PAGES': pages}.get
  )
  settings = growth.Settings()
  memory(2**30)
  every = GROWTH.contenders(settings)
  assert len(every) == len({*every}) == 2 * (5 + 5 + 6 + 5)
  assert {'num_classes@1000', 'num_classes_1@10000000'} < {*every}
  assert {'clients_1@10000', 'examples@100000', 'embedding_dim@2048'} < {*every}
  assert not GROWTH.optional(settings)
  assert growth._sizes('clients_1@7') == ({**growth._BASE, 'clients': 7}, 1)
  assert growth._sizes('embedding_dim@16')[0]['embedding_dim'] == 16
  assert growth._sizes('embedding_dim@16')[1] == 0
  # 10^7 rows of 64 floats are 2.6 GB, and a process has several of them.
  memory(8 * 2**30 // 4096)
  left_out = ['num_classes@10000000', 'num_classes_1@10000000']
  assert GROWTH.optional(settings) == left_out
  assert {*GROWTH.contenders(settings)} == {*every} - {*left_out}
  told = [
    note for note in GROWTH.notes(settings) if 'not enough memory' in note
  ]
  assert [note.split()[0] for note in told] == left_out


def grown(tmp_path):
  """A report in which classes cost memory, and clients time."""
  seconds, peaks = {}, {}
  for name, slower in (('clients', 1), ('clients_1', 2)):
    for size in (1, 10, 100):
      seconds[f'{name}@{size}'] = slower * (0.1 + size)
      peaks[f'{name}@{size}'] = 500.0
  return fakes.written(
    tmp_path / 'a.json', ratios={}, median_seconds=seconds, peak_mb=peaks
  )


def test_the_table_has_a_line_for_each_name_of_three_sizes(tmp_path):
  found = grown(tmp_path)
  text = report.to_markdown(found, is_short=True)
  heading, _, clients, one, *_ = text.splitlines()
  assert heading.startswith('| growth | sizes |')
  assert clients == ('| clients | 1 – 100 | 1.1 – 100 | 1.00 | 500 – 500 | – |')
  assert one.startswith('| clients_1 | 1 – 100 | 2.2 – 200 | 1.00 |')
  assert 'growth  ' in report.to_text(found)
  two = {k: v for k, v in found['median_seconds'].items() if '100' not in k}
  assert '| growth |' not in report.to_markdown(found | {'median_seconds': two})
  # Ratios come first.
  both = found | {'ratios': {'b/a': 1.0}, 'ranges': {'b/a': [1, 1]}}
  assert report.to_markdown(both, is_short=True).startswith('| ratio |')


def test_the_picture_has_seconds_and_memory_of_each_size(tmp_path, monkeypatch):
  drawn = []
  monkeypatch.setattr(
    pictures, 'save', lambda figure, path: drawn.append(figure)
  )
  GROWTH.draw(grown(tmp_path), tmp_path / 'a.png')
  axes = {(ax.get_xlabel(), ax.get_ylabel()): ax for ax in drawn[0].axes}
  assert len(axes) == 2
  every, one = axes['clients', 'seconds a round'].lines
  assert [*every.get_xdata()] == [1, 10, 100]
  assert [*one.get_ydata()] == pytest.approx([2.2, 20.2, 200.2])
  assert every.get_label() == 'all cores: exponent 1.00'
  assert axes['clients', 'peak memory, MB'].lines[0].get_label() == 'all cores'
  monkeypatch.undo()
  GROWTH.draw(grown(tmp_path), tmp_path / 'a.png')
  assert (tmp_path / 'a.png').read_bytes().startswith(b'\x89PNG')


@pytest.mark.parametrize('output', ['a.json', 'b.png'])
def test_a_picture_replaces_no_other_file(tmp_path, output):
  (tmp_path / 'a.png').write_text('mine')
  done = light.call('benchmark', 'growth', f'--output={tmp_path / output}')
  light.assert_one_sentence(done, 'the picture would replace')
  assert (tmp_path / 'a.png').read_text() == 'mine'


@pytest.mark.slow
def test_growth_is_measured_drawn_and_written(tmp_path):
  # The same results on one thread and on all.
  names = 'num_classes@100', 'num_classes_1@100'
  done = subprocess.run(
    [
      *(sys.executable, '-m', 'launch.benchmark', 'growth', '--small'),
      *('--max_foreign=100', f'--contenders={",".join(names)}'),
      f'--output={tmp_path / "a.json"}',
    ],
    cwd=light.ROOT,
    capture_output=True,
    text=True,
    timeout=900,
    check=False,
  )
  assert (done.returncode, done.stderr) == (0, '')
  assert sorted(os.listdir(tmp_path)) == ['a.json', 'a.png']
  found = json.loads((tmp_path / 'a.json').read_text())
  assert {*found['median_seconds']} == {*names}
  losses = {found['check'][name]['loss'] for name in names}
  assert len(losses) == 1
