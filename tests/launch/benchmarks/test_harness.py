"""Order, warm-up, ratios within a pass, disturbed passes, and the report."""

import os

import pytest

from launch import machine as machine_lib
from launch.benchmarks import catalog
from launch.benchmarks import harness
from launch.benchmarks import process
from launch.benchmarks import report
from tests.launch.benchmarks import fakes
from tff_xc import errors


@pytest.fixture
def machine(monkeypatch):
  monkeypatch.setattr(os, 'cpu_count', lambda: 2)
  return fakes.Machine()


def measure(machine, contenders, **plan):
  return harness.measure(
    contenders, harness.Plan(**plan), usage=machine.usage, clock=machine.clock
  )


def test_every_pass_runs_each_contender_once_in_a_seeded_shuffled_order(
  machine,
):
  def orders(seed):
    machine.order.clear()
    contenders = {n: fakes.Fake(machine, n, [1.0]) for n in 'abc'}
    measure(machine, contenders, passes=12, warm_up=2, seed=seed)
    assert machine.order[:6] == list('aabbcc')  # Warm-up, one by one.
    passes = machine.order[6:]
    return [tuple(passes[i : i + 3]) for i in range(0, len(passes), 3)]

  found = orders(0)
  assert len(found) == 12
  assert all(sorted(order) == list('abc') for order in found)
  assert len(set(found)) > 2
  assert orders(0) == found
  assert orders(1) != found


def test_ratios_are_taken_within_a_pass(machine):
  # The machine slows down by ten in every second pass; the ratio does not.
  contenders = {
    'a': fakes.Fake(machine, 'a', [1.0, 10.0], {'loss': 1}),
    'b': fakes.Fake(machine, 'b', [2.0, 20.0, 2.0, 30.0], {'loss': 1.05}),
  }
  measured = measure(machine, contenders, passes=4, warm_up=0)
  found = report.build(
    fakes.FAKE, fakes.Settings(), measured, harness.Plan(passes=4)
  )
  assert (found['ratios'], found['ranges']) == ({'b/a': 2.0}, {'b/a': [2, 3]})
  assert found['median_seconds']['a'] == 5.5
  assert found['parts']['a'] == {'all': 5.5, 'half': 2.75}
  assert found['peak_mb'] == {'a': 0.004, 'b': 0.004}
  assert measured.first['b'].seconds == 2.0


def test_a_disturbed_pass_is_dropped_and_repeated(machine):
  # Rounds 1 and 2 of a, after its warm-up; 15 % of 2 cores x 2 s are 0.6 s.
  contenders = {
    'a': fakes.Fake(machine, 'a', [1.0], foreign=[9.0, 0.7, 0.5]),
    'b': fakes.Fake(machine, 'b', [1.0]),
  }
  measured = measure(machine, contenders, passes=3, warm_up=1)
  assert len(measured.passes) == 3
  assert measured.dropped == 1
  assert contenders['b'].rounds == 5


def test_it_gives_up_after_three_times_the_passes(machine):
  disturbed = [0.0, 0.0] + 7 * [9.0]
  contenders = {'a': fakes.Fake(machine, 'a', [1.0], foreign=disturbed)}
  measured = measure(machine, contenders, passes=3, warm_up=0)
  assert (len(measured.passes), measured.dropped) == (2, 7)
  contenders = {'a': fakes.Fake(machine, 'a', [1.0], foreign=9 * [9.0])}
  with pytest.raises(errors.InputError, match='every pass of 9'):
    measure(machine, contenders, passes=3, warm_up=0)
  assert not contenders['a'].is_running


@pytest.mark.parametrize('error', [errors.InputError('x'), KeyboardInterrupt()])
def test_all_contenders_are_ended_whatever_happens(machine, error):
  def fail():
    raise error

  contenders = {n: fakes.Fake(machine, n, [1.0]) for n in 'abc'}
  contenders['b'].round = fail
  with pytest.raises(type(error)):
    measure(machine, contenders)
  assert not any(c.is_running for c in contenders.values())


def test_what_computes_something_else_is_found():
  for check, message in (
    ({'loss': 1.01, 'norm': 5.0}, None),
    ({'loss': 1.01}, None),
    ({'loss': 1.2}, '1.2'),
    ({'loss': float('nan')}, 'nan'),
    ({'other': 1.0}, 'nothing'),
  ):
    first = {
      'a': process.Reply(1.0, {'loss': 1.0, 'norm': 5.0}),
      'b': process.Reply(1.0, check),
    }
    wrong = harness.disagreeing(first, 'ab', {'loss': 0.05, 'norm': 0.05})
    assert list(wrong) == ['b'] * (message is not None)
    assert (message or '') in wrong.get('b', '')


def test_what_computes_something_else_is_a_warning_and_no_number():
  found = fakes.build(a=1.0, b=2.0, c=1.0)
  assert list(found['ratios']) == ['c/a']
  assert list(found['median_seconds']) == ['a', 'c']
  assert found['check']['b'] == {'loss': 2.0}
  [warning] = found['warnings']
  assert warning.startswith('b ')
  found = fakes.build(passes=2, foreign=[0.0] + 5 * [900.0], a=1.0)
  assert (found['passes'], found['dropped']) == (1, 5)
  [warning] = found['warnings']
  assert 'dropped: 5' in warning


def test_the_tables_say_how_they_were_made(tmp_path):
  text = report.to_text(fakes.build(a=1.0, b=1.0))
  assert text.startswith('fake: clients=3, sizes=1,2\n2 passes, 0 dropped; ')
  assert '\n3 clients are few.\n\ncontender' in text
  assert '\na               1.5        0\n' in text
  assert '\nhalf            0.75  1.25\n' in text
  found = fakes.written(tmp_path / 'a.json', warnings=['too few'])
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
  assert (note, warning) == ('3 clients are few.', '**Warning**: too few')
  # In short, the ratios, or else the seconds.
  short = report.to_markdown(found, is_short=True)
  assert short.startswith('| ratio |') and '2020-02-02' in short
  assert '| contender |' not in short
  short = report.to_markdown(found | {'ratios': {}}, is_short=True)
  assert short.startswith('| contender |')


def test_another_file_is_no_report(tmp_path):
  path = tmp_path / 'a.json'
  for text, problem in (('{', 'no report'), ('3', 'no'), ('{}', 'has no name')):
    path.write_text(text)
    with pytest.raises(errors.InputError, match=rf'a\.json.*{problem}'):
      report.read(path)


def test_a_processor_is_told_with_its_generation():
  of = lambda flags: machine_lib.processor_of(
    f'cpu family\t: 25\nmodel\t\t: 1\nmodel name\t: AMD EPYC\nflags\t\t: {flags}\n'
    '\nmodel\t\t: 2\nflags\t\t: avx512f\n'
  )
  assert of('fpu avx avx2 avx512f avx512_vnni').endswith(', AVX-512 VNNI)')
  assert of('fpu avx avx2') == 'AMD EPYC (family 25, model 1, AVX2)'
  assert of('fpu avx') == 'AMD EPYC (family 25, model 1)'
  assert machine_lib.processor_of('') == 'unknown'


def test_gpus_are_told_by_name(tmp_path):
  assert report.gpu_names(tmp_path / 'none') == []
  for slot in ('0000:00:06.0', '0000:00:05.0'):
    (tmp_path / slot).mkdir()
    (tmp_path / slot / 'information').write_text(
      f'Model: \t\t NVIDIA {slot[-3]}\nIRQ:   \t\t 45\n'
    )
  assert report.gpu_names(tmp_path) == ['NVIDIA 5', 'NVIDIA 6']


def test_ratios_groups_and_growth_are_of_each_size():
  benchmark = catalog.get('bottleneck')
  names = ['plain@5', 'fullsoftmax@5', 'fedss@5', 'fedss@9', 'torch_submodel@9']
  assert benchmark.pairs(names) == [
    ('fullsoftmax@5', 'plain@5'),
    ('fedss@5', 'fullsoftmax@5'),
    ('fedss@9', 'torch_submodel@9'),
  ]
  assert benchmark.same(names) == [
    ['plain@5', 'fullsoftmax@5'],
    ['fedss@9', 'torch_submodel@9'],
  ]
  benchmark = catalog.get('classes')
  names = ['in_process@10', 'in_process@1000', 'worker@10', 'worker@20']
  assert benchmark.pairs(names) == [
    ('worker@10', 'in_process@10'),
    ('in_process@1000', 'in_process@10'),
    ('worker@20', 'worker@10'),
  ]
  assert benchmark.same(names) == [['in_process@10', 'worker@10']]
  assert catalog.get('round').same(['plain', 'worker']) == [['plain', 'worker']]


@pytest.mark.parametrize('name', catalog.BENCHMARKS)
def test_every_contender_is_in_a_ratio(name):
  benchmark = catalog.get(name)
  settings = benchmark.settings()
  names = [*benchmark.contenders(settings), *benchmark.optional(settings)]
  pairs = benchmark.pairs(names)
  # Nothing to compare, and no room for two at once.
  if name in ('paper_sizes', 'growth'):
    assert (pairs, benchmark.passes, benchmark.fresh) == ([], 1, True)
    return
  assert {n for pair in pairs for n in pair} == set(names)
  assert len(set(pairs)) == len(pairs)
  assert benchmark.passes >= 7
