"""`launch.audit` on runs, and on tasks without a run."""

import numpy as np
import pandas as pd
import pytest

from launch import audit
from tasks import configuration, experiment
from tests.launch import light, test_evaluate
from tff_xc import errors
from tff_xc.report import run_files

here = test_evaluate.here
SETTINGS = audit.Settings(3, 4, clip=0.1, noise=0.5)
_SIZES = {
  'num_classes': 30,
  'num_clients': 6,
  'embedding_dim': 4,
  'examples_per_client': 6,
  'classes_per_client': 3,
}


@pytest.mark.slow
def test_of_a_run_all_schedules(here, capsys):
  path = test_evaluate.untrained(
    here / 'run', 'glyphs', 'fedss', negatives=8, **_SIZES, negatives_schedule='sticky'
  )
  before = {p: p.read_bytes() for p in path.rglob('*') if p.is_file()}
  frames = audit.run([str(path)], None, {}, str(here / 'o'), SETTINGS)
  assert {p: p.read_bytes() for p in before} == before
  assert (here / 'o' / 'audit.png').stat().st_size > 1000
  for name, frame in frames.items():
    assert pd.read_csv(here / 'o' / f'{name}.csv').shape == frame.shape
  of_schedules = frames['audit'].set_index('schedule').to_dict('index')
  assert of_schedules.keys() == {'fresh', 'sticky', 'partial', 'randomized'}
  fresh, sticky, randomized = (of_schedules[n] for n in ('fresh', 'sticky', 'randomized'))
  # Each client has the same number of own classes, among 8 other classes.
  assert fresh['posterior_first'] == pytest.approx(sticky['posterior_last'])
  assert fresh['posterior_last'] > 0.9
  assert fresh['requests_until_90'] <= 3
  assert np.isnan(sticky['requests_until_90'])
  assert randomized['epsilon_last'] <= 3 + 1e-9
  assert randomized['own_requested'] < 1
  updates = frames['updates'].set_index(['seen', 'by'])['auc']
  assert updates['rows as sent', 'size'] == pytest.approx(updates['rows clipped to 0.1', 'size'])
  assert updates['rows as sent', 'size'] > 0.6
  assert updates['rows with noise 0.5', 'size'] < 0.8
  assert 0 <= updates['loss of members', 'loss'] <= 1
  # The noise of a sum consists of the noises of its summands.
  [sent, clipped, noisy] = (
    updates[f'rows {what}, summed over 3', 'size']
    for what in ('as sent', 'clipped to 0.1', 'with noise 0.5')
  )
  assert sent == pytest.approx(clipped, abs=0.2)
  assert sent > noisy
  shown = capsys.readouterr().out.partition('written to')[0].splitlines()
  assert max(map(len, shown)) <= 100


@pytest.mark.slow
def test_requests_that_two_runs_share_count_once(here):
  runs = [
    str(
      test_evaluate.untrained(here / f'{seed}', 'glyphs', 'fedss', seed=seed, negatives=8, **_SIZES)
    )
    for seed in (0, 1)
  ]
  frames = audit.run(runs, None, {}, 'o', SETTINGS._replace(seeds=2))
  found = frames['requests']
  assert (found.groupby(['seed', 'schedule']).size() == 4).all()
  assert {*found['seed']} == {0, 1, 2}
  [fresh] = frames['audit'].query('schedule == "fresh"').to_dict('records')
  assert (fresh['seeds'], fresh['runs']) == (3, 0)  # Nobody measured a score.
  first = found.query('schedule == "fresh" and requests == 1')['auc']
  assert fresh['auc_first'] == pytest.approx(first.mean())
  # Updates belong to the weights of each run.
  assert (frames['updates'].groupby('seed').size() == [13, 26, 13]).all()


@pytest.mark.slow
def test_words_are_told_exactly_and_buckets_narrow_labels(here):
  sizes = {'num_classes': 40, 'num_features': 64, 'hidden_dim': 4}
  words = {'feature_dim': 4, 'classes_per_client': 2, 'examples_per_round': 2}
  config = configuration.resolve('sparse-words', 'posonly', sizes | words)
  found = audit.run([], config, {}, None, SETTINGS)['requests']
  of_words = found[found['schedule'].str.startswith('rows of')]
  assert len(of_words) == SETTINGS.requests
  known = of_words['known'].to_numpy()
  assert 0 < known[0] < known[-1] <= 1
  assert (found[found['schedule'] == 'own only']['posterior'] == 1).all()
  config = configuration.resolve(
    'sparse-words-sets', 'fedmlh', sizes | {'hash_tables': 3, 'hash_buckets': 12, 'num_clients': 5}
  )
  [line] = audit.run([], config, {}, None, SETTINGS)['requests'].to_dict('records')
  assert line['schedule'] == 'own buckets, 3 tables'
  assert 0.5 < line['auc'] <= 1
  assert line['candidates'] < 40


@pytest.mark.slow
def test_items_are_told_as_features_and_as_labels(here):
  """A request contains both kinds in one table, and a sequence contains all items of a user."""
  sizes = {'num_classes': 40, 'num_clients': 6, 'embedding_dim': 4}
  config = configuration.resolve('items-demo', 'posonly', sizes)
  found = audit.run([], config, {}, None, SETTINGS)
  [line] = found['audit'].to_dict('records')
  assert line['posterior_first'] == line['auc_first'] == 1
  assert line['requests_until_90'] == 1
  config = configuration.resolve('items-demo', 'fedss', {**sizes, 'negatives': 5})
  found = audit.run([], config, {}, 'o', SETTINGS._replace(clients=6))
  train = experiment.assemble(config).dataset.train
  own = []
  for place in range(6):
    numbers = train.partition.of_client(place)
    own.append({*train.pool.labels[numbers], *train.pool.read(numbers).indices})
  [first, *_] = found['requests'].query('schedule == "fresh"')['rows']
  assert first == pytest.approx(np.mean([*map(len, own)]) + 5, abs=3)
  # Rows that are only features also count as the client's own rows.
  updates = found['updates'].set_index(['seen', 'by'])['auc']
  assert updates['rows as sent', 'direction'] > 0.6
  # If clients request all rows, requests tell nothing.
  config = configuration.resolve('glyphs', 'fedavg', _SIZES)
  assert audit.run([], config, {}, None, SETTINGS)['audit'].empty


def test_runs_of_one_schedule_may_differ_in_their_seeds_only(here, monkeypatch):
  config = configuration.resolve('glyphs', 'fedss', {**_SIZES, 'negatives': 5})
  made = experiment.assemble(config)
  config = run_files.flat(config)
  first = audit.Subject(made.dataset, made.algorithm, None, config, 0)
  monkeypatch.setattr(audit, '_requests', lambda *_: [])

  class Done(Exception):
    pass

  def check(**changes):
    audited = []

    def updates(*subject):
      audited.append(subject)
      if len(audited) == 2:
        raise Done
      return []

    monkeypatch.setattr(audit, '_updates', updates)
    subjects = [first, first._replace(config=config | changes)]
    monkeypatch.setattr(audit, '_subjects', lambda *_: subjects)
    audit.run(['a', 'b'], None, {}, None, SETTINGS)

  with pytest.raises(Done):
    check(seed=1, device='cpu')
  with pytest.raises(errors.InputError, match='negatives was 5'):
    check(negatives=80)


def test_what_cannot_be_audited_is_refused(here):
  for name, message in (('centralized', 'without clients'), ('fedproto', 'exactly their classes')):
    config = configuration.resolve('glyphs', name, {'num_classes': 10})
    with pytest.raises(errors.InputError, match=message):
      audit.run([], config, {}, None, SETTINGS)


@pytest.mark.parametrize('flag', ['--update_clip=nan', '--update_noise=nan'])
def test_nan_is_no_bound(flag):
  done = light.call('audit', '--task=glyphs', '--algorithm=fedss', flag)
  light.assert_one_sentence(done, 'finite')
