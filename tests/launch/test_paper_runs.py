"""A published table of scores is trained, and printed beside its numbers."""

import json

import pytest

from launch import paper_runs
from launch.sweeps import children
from launch.sweeps import plan
from tasks.papers import registry
from tests.launch import light
from tests.report import fake_runs
from tff_xc import errors

TABLE3 = registry.TABLES['fedmlh/table3']
EURLEX = 'eurlex-4k-sets'


@pytest.mark.parametrize(
  ('arguments', 'problem'),
  [
    ((), '--task is missing: fedmlh/table3 has results on eurlex-4k-sets, '),
    (('--task=glyphs',), '--task=glyphs: fedmlh/table3 has results on '),
    (('--algorithm=moon',), 'has, on eurlex-4k-sets, fedmlh, fedavg'),
    (('--negatives=2',), 'none of these algorithms: fedmlh, fedavg'),
    (('--seeds=1,1',), '--seeds=1,1: expected different whole numbers'),
    (('--validation=2',), '--validation=2.0'),
    (('--seed=1',), "'seed'"),
  ],
)
def test_bad_input_is_one_sentence(arguments, problem, tmp_path):
  if arguments and not arguments[0].startswith('--task'):
    arguments = (f'--task={EURLEX}', *arguments)
  output = tmp_path / 'table'
  done = light.call(
    'reproduce', 'fedmlh/table3', f'--output={output}', *arguments
  )
  light.assert_one_sentence(done, problem)
  assert not output.exists()


def planned(output, given=(), seeds=(0, 1)):
  rows = paper_runs.rows_of(TABLE3, EURLEX, None)
  return rows, paper_runs.plan_runs(rows, dict(given), seeds, output)


def test_settings_are_the_tables_unless_flags_replace_them(tmp_path):
  _, (hashed, plain) = planned(tmp_path, {'rounds': 9, 'score': 'logsigmoid'})
  assert [run.seed for run in hashed] == [0, 1]
  assert hashed[0].folder == tmp_path / 'fedmlh' / 'seed0'
  for run in (*hashed, *plain):
    assert run.config['rounds'] == 9
    assert run.config['best_by'] == 'pc_mean'
    assert run.config['options']['validation'] == 0
    assert run.config['options']['published_reading']
    assert not run.config['hyperparameters']['shuffle']
  assert hashed[0].config['hyperparameters']['score'] == 'logsigmoid'
  assert 'score' not in plain[0].config['hyperparameters']


TASKS = [(n, row.task) for n, t in registry.TABLES.items() for row in t.rows]


@pytest.mark.parametrize(('name', 'task'), dict.fromkeys(TASKS))
def test_rows_with_different_settings_have_folders_of_their_own(
  name, task, tmp_path
):
  rows = paper_runs.rows_of(registry.TABLES[name], task, None)
  runs = paper_runs.plan_runs(rows, {}, [0], tmp_path)
  different = {(row.algorithm, str(row.changes)) for row in rows}
  assert len({group[0].folder for group in runs}) == len(different)
  assert all(group[0].folder.name == 'seed0' for group in runs)


def test_what_rows_differ_in_is_no_flag(tmp_path):
  rows = paper_runs.rows_of(
    registry.TABLES['fedss/table1'], 'glyphs-landmarks', 'fedss'
  )
  [[run], *_] = paper_runs.plan_runs(rows, {}, [0], tmp_path)
  assert run.folder == tmp_path / 'fedss_negatives=5' / 'seed0'
  with pytest.raises(errors.InputError, match='--negatives is what rows'):
    paper_runs.plan_runs(rows, {'negatives': 3}, [0], tmp_path)


def finish(run, score, rounds):
  """Writes a finished run whose best round has a score."""
  fake_runs.write_run(run.folder)
  (run.folder / 'config.json').write_text(json.dumps(run.config))
  path = run.folder / 'summary.json'
  summary = json.loads(path.read_text())
  best = {'pc@1': score, 'pc@3': 0.2, 'round': rounds, 'bytes_down': 2e6}
  summary |= {'best_round': best, 'rounds': run.config['rounds']}
  path.write_text(json.dumps(summary))


class Ended:
  def __init__(self, run, error=None):
    self.run, self.error, self.seconds = run, error, 1.0


@pytest.fixture
def trains(monkeypatch):
  """Makes `children` finish runs at once; () -> the runs that were started."""
  started = []

  def run_all(waiting, arguments_of, jobs, on_end):
    for run in waiting:
      fails = run.config['algorithm'] == 'fedavg' and run.seed == 1
      started.append(arguments_of(run, 1))
      if not fails:
        finish(run, 0.5 + run.seed / 10, 30 + run.seed)
      on_end(Ended(run, 'no memory' if fails else None), 1)

  monkeypatch.setattr(children, 'run_all', run_all)
  monkeypatch.setattr(children, 'check_data', lambda *_: None)
  return started


def test_the_best_rounds_are_shown_beside_the_papers(trains, tmp_path, capsys):
  rows, runs = planned(tmp_path, {'rounds': 20})
  text = paper_runs.run(TABLE3, rows, runs, tmp_path, 1)
  assert '--score=logit' in trains[0]
  assert '--score=logit' not in trains[-1]
  lines = text.splitlines()
  assert lines[0].startswith('FedMLH, Table 3, task eurlex-4k-sets. Scores of')
  assert 'Changed here: --rounds=20.' in ' '.join(lines[:2])
  cells = [line.split() for line in lines if line.startswith('fedmlh ')]
  assert cells[0][:5] == ['fedmlh', '55.0', '±', '7.1', '59.3']
  assert cells[0][5:] == ['20.0', '±', '0.0', '45.6', '–', '38.4']
  assert cells[1][:5] == ['fedmlh', '2', '30.5', '±', '0.7']
  # A seed failed: no mean over the other one.
  assert [line.split() for line in lines if line.startswith('fedavg ')] == [
    ['fedavg', '–', '50.3', '–', '38.3', '–', '33.3'],
    ['fedavg', '0', '–', '–', '–'],
  ]
  assert 'fedavg/seed1 failed: no memory' in text
  assert max(map(len, lines[:10])) <= 100
  assert (tmp_path / 'compare.png').exists()
  assert 'finished 1 of 4, about' in capsys.readouterr().out
  trains.clear()
  paper_runs.run(TABLE3, rows, runs, tmp_path, 1)
  assert len(trains) == 1  # Finished runs are kept.


def write_scores(folder, scores):
  """Writes a finished run with a score after rounds 2, 4, 6 and so on."""
  fake_runs.write_run(folder, top1=scores[-1], rounds=2 * len(scores))
  text = 'round,local_batches,top1\n' + ''.join(
    f'{2 * n},8,{score}\n' for n, score in enumerate(scores, 1)
  )
  (folder / 'metrics.csv').write_text(text)
  path = folder / 'summary.json'
  path.write_text(
    json.dumps({'best_round': None, **json.loads(path.read_text())})
  )


def test_results_at_budgets_and_relative_ones_are_measured(tmp_path):
  whole, part = (
    plan.Run({}, {'seed': 0}, tmp_path / name, name)
    for name in ('whole', 'part')
  )
  write_scores(whole.folder, (0.5, 0.8))
  write_scores(part.folder, (0.1, 0.3, 0.4))

  def measured(result, *reference):
    return paper_runs._measured([part], result, reference)

  assert measured('top1') == '40.0'
  assert measured('top1@rounds:5') == '30.0'
  assert measured('top1@batches:16') == '30.0'
  assert measured('top1@rounds:7') == '–'  # It ended before.
  assert measured('top1:0.3') == '4'
  assert measured('relative_top1:0.1', whole) == '2'
  assert measured('relative_top1:0.5', whole) == '6'
  assert measured('relative_top1:0.9', whole) == '>6'
  assert measured('relative_top1:0.1') == '–'


def test_many_results_fit_a_terminal(tmp_path, monkeypatch):
  monkeypatch.setenv('COLUMNS', '100')
  found = registry.TABLES['fedvc/table2']
  rows = paper_runs.rows_of(found, 'inaturalist-geo-3k', 'fedavg')
  runs = paper_runs.plan_runs(rows, {}, [0], tmp_path)
  write_scores(runs[0][0].folder, (0.1, 0.3))
  text = paper_runs._text(found, rows, runs, '')
  # Headings of six results wrap; in a line they would take 200 columns.
  assert max(map(len, text.splitlines())) <= 110
  for word in ('48.7', '46.5', 'batches'):
    assert word in text


def test_a_table_without_any_result_says_why(trains, tmp_path):
  rows, runs = planned(tmp_path, {'rounds': 20}, [1])
  with pytest.raises(errors.InputError, match='failure: no memory'):
    paper_runs.run(TABLE3, rows[1:], runs[1:], tmp_path, 1)
