"""A plan predicts a run: the planned bytes equal those of a real round."""

import json
import shlex

import pandas as pd
import pytest

from datasets import items
from datasets.procedural import features, purchases
from launch import advice, plan, plan_page
from tasks import configuration, experiment, registry as tasks
from tests import small_data
from tests.launch import flag_values, light, own_examples
from tff_xc import errors
from tff_xc.algorithms import registry
from tff_xc.runtime import registry as runtimes

SHAPE = small_data.FEATURES
# The algorithms of the rules, and some more.
USED = dict.fromkeys(name for rule in advice.RULES for name in rule.use)
SOME = [*{'fedavg': None, **USED, 'posonly': None, 'centralized': None}]


@pytest.fixture
def few(monkeypatch):
  """Plans only some algorithms, to save time."""
  monkeypatch.setattr(plan, 'PLANNED', SOME)


def planned(changes=SHAPE, task='features', **more):
  return plan.Planner(task, changes, **more).make()


def _table(folder):
  own_examples.items(folder)
  return {'data_dir': str(folder / 'items.csv'), 'label_column': 'item'} | {
    'user_column': 'user',
    'hidden_dim': 4,
  }


def _images(folder):
  own_examples.photos(folder)
  return {'data_dir': str(folder / 'photos'), 'split': 'iid:4', 'image_size': 8}


def _text(folder):
  own_examples.text(folder)
  return {
    'data_dir': str(folder / 'train.txt'),
    'split': 'iid:5',
    'test_fraction': 0.2,
    'hidden_dim': 4,
    'feature_dim': 4,
    'examples_per_round': 0,
  }


DATA = {
  'images': _images,
  'table': _table,
  'sparse-text': _text,
  'items-demo': lambda _: {'num_classes': 60, 'num_clients': 8},
}


@pytest.mark.slow  # `tests/round/test_request.py` has a quick test of this.
@pytest.mark.parametrize('task', DATA)
@pytest.mark.parametrize('name', registry.ALGORITHMS)
def test_bytes_are_those_of_a_round_of_all_clients(task, name, tmp_path, in_process, monkeypatch):
  monkeypatch.setattr(runtimes, 'install', lambda *_, **__: in_process)
  given = {**DATA[task](tmp_path), 'embedding_dim': 4, 'rounds': 1}
  names = {*registry.get(name).names, *configuration.SETTINGS, *tasks.OPTIONS}
  if name == 'fedvc':  # Each client participates once in its round.
    given |= {'batch_size': 2, 'virtual_client_size': 2}
  if (task, name) == ('items-demo', 'fedir'):  # A sequence has several targets.
    given['encoder'] = 'bag'
  if task == 'sparse-text' and not registry.get(name).has_clients:
    given.pop('examples_per_round')
  given = {n: v for n, v in given.items() if n in names}
  monkeypatch.setattr(plan, 'PLANNED', [*{**USED, name: None}])
  found = planned(given, task)
  [line] = [a for a in found['algorithms'] if a['algorithm'] == name]
  experiment.run(configuration.resolve(task, name, given), str(tmp_path / 'run'))
  row = pd.read_csv(tmp_path / 'run' / 'metrics.csv').iloc[-1]
  assert found['rounds']['clients_per_round'] == found['data']['clients']
  for way in ('down', 'up'):
    # FedVC samples examples, and therefore features, at random.
    drawn = (task, name) == ('sparse-text', 'fedvc')
    exact = pytest.approx(line[f'bytes_{way}'], rel=0.2 if drawn else 1e-6)
    assert row[f'bytes_{way}_per_client'] == exact
  assert row['class_rows'] == pytest.approx(line['class_rows'], rel=1e-6)


def test_the_data_and_the_rounds_are_counted(few):
  found = planned({**SHAPE, 'clients_per_round': 2, 'rounds': 6})
  data = found['data']
  assert (data['classes'], data['clients'], data['examples']) == (12, 6, 30)
  assert {data['classes_per_client'][name] for name in ('least', 'most')} == {3}
  assert data['clients_per_class']['mean'] == 6 * 3 / 12
  of = found['rounds']
  assert of['visits_of_a_client'] == 2
  assert of['rounds_for_visits'] == [15, 30]
  absent = data['clients_per_class']['least'] == 0
  assert any('no client has' in text for text in data['check']) == absent
  with pytest.raises(errors.InputError, match='clients_per_round=6 or fewer'):
    planned({**SHAPE, 'clients_per_round': 7})


WIDE = {**SHAPE, 'num_classes': 2000, 'hidden_dim': 32}


def test_a_limit_chooses_what_fits(few):
  limit = 20_000  # All class rows have 32,000 bytes, and the encoder has 13,072.
  found = planned(WIDE, most_bytes=limit)
  by_name = {a['algorithm']: a for a in found['algorithms']}
  assert 'above the limit' in by_name['fullsoftmax']['why_not']
  assert not by_name['fedss']['why_not']
  start = found['starts'][0]
  assert start['algorithm'] == 'fedss'
  assert max(start['bytes_down'], start['bytes_up']) <= limit
  with pytest.raises(errors.InputError, match='max_megabytes_per_round'):
    planned(WIDE, most_bytes=6_000)
  # Messages are halved where they would not fit.
  found = planned(WIDE, most_bytes=10_000)
  by_name = {a['algorithm']: a for a in found['algorithms']}
  assert by_name['fedss']['message_precision'] == 'bfloat16'
  assert all('--message_precision=bfloat16' in s['command'] for s in found['starts'])
  assert found['starts'][0]['bytes_up'] <= 10_000


def test_it_says_what_to_do_where_no_recommended_algorithm_fits():
  changes = {'num_clients': 8, 'num_classes': 200, 'num_features': 64, 'hidden_dim': 8}
  found = planned(changes, 'sparse-words-sets', most_bytes=6000)
  assert found['starts'] == [] and 'fedavg' in found['why_no_start']
  assert 'Raise the limit, or train --algorithm=fed' in ' '.join(
    plan_page.to_text(found, 100).split()
  )
  found = planned(changes, 'sparse-words-sets', most_bytes=6000, chosen=('fedavg',))
  assert found['why_no_start'].endswith('leave out --algorithm')


def test_negatives_are_as_many_as_the_limit_allows(few):
  def of(found):
    return {s['algorithm']: s for s in found['starts']}['fedss']

  free = planned(WIDE)
  [line] = [a for a in free['algorithms'] if a['algorithm'] == 'fedss']
  for key in ('negatives', 'bytes_down', 'bytes_up'):
    assert of(free)[key] == line[key]
  # 200 negatives are a tenth of the classes.
  assert '--negatives=200' in of(planned(WIDE, most_bytes=20_000))['command']
  less = of(planned(WIDE, most_bytes=15_000))
  negatives = int(less['command'].rpartition('--negatives=')[2])
  assert 0 < negatives < 200
  row = 4 * 4 + 8  # A row is sent with its id, and the request contains the id, too.
  assert 15_000 - row < less['bytes_up'] <= 15_000


def test_the_second_command_has_more_rounds_than_the_first(few):
  for rounds in (3, 200):
    first, second = planned({**SHAPE, 'rounds': rounds}, chosen=('fedavg',))['starts']
    assert first['algorithm'] == second['algorithm'] == 'fedavg'
    assert first['rounds'] < second['rounds']


def test_only_named_algorithms_are_recommended(few):
  found = planned(chosen=('fedproto', 'fedss'))
  names = [a['algorithm'] for a in found['algorithms']]
  assert {s['algorithm'] for s in found['starts']} <= {*names}
  found = planned(chosen=('posonly',))
  assert {s['algorithm'] for s in found['starts']} == {'posonly'}
  assert 'no rule recommends it' in found['starts'][0]['why']


def test_a_thousand_sets_of_labels_are_no_reason_for_hashes(few):
  first, second = planned({}, 'sparse-words-sets')['starts']
  assert first['algorithm'] == second['algorithm'] == 'fedavg'
  assert first['is_near'] and first['evidence'].startswith('delicious-sets')


def test_each_algorithm_has_the_data_of_its_network(monkeypatch, capsys):
  monkeypatch.setattr(plan, 'PLANNED', ('fedss', 'fullsoftmax', 'fedproto'))
  changes = {'num_classes': 60, 'num_clients': 30, 'items_per_user': 8.0}
  planner = plan.Planner('items-demo', changes)
  planner.make()
  assert capsys.readouterr().err.count('popularity') == 1
  of = {name: made.dataset.train for name, (made, _) in planner._made.items()}
  assert of['fedss'] is of['fullsoftmax']  # Both use the data as sequences.
  assert len(of['fedproto'].partition.numbers) > len(of['fedss'].partition.numbers)
  alone = plan.Planner('items-demo', changes, chosen=('fedproto',)).make()
  assert alone['data']['examples'] == len(of['fedproto'].partition.numbers)


def test_a_command_is_what_training_takes(few):
  for start in planned({**SHAPE, 'rounds': 3})['starts']:
    config, _ = flag_values.resolved(shlex.split(start['command'])[3:])
    assert config['rounds'] == start['rounds']


def test_what_training_refuses_is_not_planned():
  private = {'dp': 'central', 'dp_noise_multiplier': 1.0, 'calibration': 'prior'}
  with pytest.raises(errors.InputError, match='calibration=prior'):
    planned({**SHAPE, **private}, chosen=('fedavg',))


def test_one_class_a_client_leaves_no_loss(few):
  found = planned({**SHAPE, 'classes_per_client': 1})
  why = {a['algorithm']: a['why_not'] for a in found['algorithms']}
  assert 'nothing is learned' in why['posonly']
  assert 'alike' in why['fedproto']
  assert not why['fedavg']


def test_an_encoder_has_about_the_weights_that_are_asked_for(few):
  shape = {n: v for n, v in SHAPE.items() if n != 'hidden_dim'}
  found = planned(shape, encoder_parameters=50_000)
  assert found['data']['encoder_parameters'] == pytest.approx(50_000, rel=0.02)
  assert '--hidden_dim=' in found['starts'][0]['command']
  with pytest.raises(errors.InputError, match='encoder_parameters'):
    planned(shape, encoder_parameters=3)
  with pytest.raises(errors.InputError, match='classes_per_client'):
    planned({**SHAPE, 'classes_per_client': 99})


def test_the_text_fits_and_its_commands_may_be_copied(few):
  found = planned({**SHAPE, 'rounds': 1, 'clients_per_round': 2})
  text = plan_page.to_text(found, 100)
  assert max(map(len, text.splitlines())) <= 100
  start = {**found['starts'][0], 'command': f"a '--data_dir={'a b ' * 60}' c"}
  text = plan_page._of_starts({'starts': [start]}, 100)
  assert shlex.split(text)[-1] and f'--data_dir={"a b " * 60}' in text


def test_the_function_returns_a_frame_of_a_shape_or_of_data(few):
  frame = plan.plan(SHAPE, rounds=7)
  assert [*frame['algorithm']] == SOME
  assert frame.attrs['rounds']['rounds'] == 7
  dataset = features.load_preset('features', num_classes=5, num_clients=4, classes_per_client=2)
  of_data = plan.plan(dataset, hidden_dim=4, max_megabytes_per_round=1)
  assert of_data.attrs['task'] == 'table'
  assert of_data.attrs['data']['clients'] == 4
  assert (of_data['why_not'] == '').all()


def test_a_data_set_of_item_lists_is_planned_as_one(few):
  drawn = purchases.draw(purchases.Options(20, 30, 6.0))
  dataset = items.federated('lists', drawn, items.Options(sequences=True))
  found = plan.plan(dataset, data_dir='lists.csv').attrs
  assert found['task'] == 'items'
  assert [start['algorithm'] for start in found['starts']] == ['fedss', 'fullsoftmax']
  assert '--data_dir=lists.csv' in found['starts'][0]['command']


def test_json_and_a_picture_are_written(few, tmp_path):
  found = planned(most_bytes=1e6)
  assert 'plan.png' in plan_page.write(found, str(tmp_path / 'out'))
  read = json.loads((tmp_path / 'out' / 'plan.json').read_text())
  assert read['data']['classes'] == 12
  assert read['starts'][0]['command'].startswith('python -m launch.train')
  assert (tmp_path / 'out' / 'plan.png').stat().st_size > 1000
  assert planned()['most_bytes'] is None


@pytest.mark.slow
def test_a_round_is_measured(few, in_process, monkeypatch):
  monkeypatch.setattr(runtimes, 'install', lambda *_, **__: in_process)
  found = planned(measures=True, chosen=('fedss',))
  [line] = found['algorithms']
  assert line['seconds_per_round'] > 0
  assert f'{line["seconds_per_round"]:.2f}' in plan_page.to_text(found, 100)


@pytest.mark.parametrize('flag', ['--json', '--output=plan'])
def test_a_plan_of_no_data_is_refused(flag):
  light.assert_one_sentence(light.call('plan', flag), 'no flag names the data')


def test_help_takes_several_algorithms():
  done = light.call('plan', '--help', '--algorithm=fedss,fedavg')
  assert (done.returncode, done.stdout) == (0, light.call('plan', '--help').stdout)
