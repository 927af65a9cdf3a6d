"""The papers' photographs: their settings, and what is said where files are missing."""

import re
import shutil

import numpy as np
import pytest

from datasets.splits import rules
from launch import doctor
from tasks import experiment
from tasks import photographs
from tasks import registry
from tasks.papers import registry as papers
from tests.datasets.images import on_disk
from tff_xc import errors
from tff_xc import heads

NAMES = [task.name for task in photographs.TASKS]


def resolve(task, algorithm='fedss', **changes):
  return experiment.resolve(task, algorithm, changes)


def split(folder, ids, retrieval):
  """Writes a split of images `CLASS/NAME`, two users."""
  folder.mkdir(parents=True)
  of = lambda name: f'{name},{name.split("/")[0]}'
  rows = [f'{i % 2},{of(name)}' for i, name in enumerate(ids)]
  for name, lines in (
    ('federated_train', ['user_id,image_id,class', *rows]),
    ('retrieval', ['image_id,class', *map(of, retrieval)]),
  ):
    (folder / f'{name}.csv').write_text('\n'.join(lines))


def test_all_rules_and_the_papers_tasks_are_here():
  made = [name for name in NAMES if name != 'gld23k']
  assert sorted(made) == sorted(n for n, r in rules.RULES.items() if r.read)
  for name in made:
    counts = rules.RULES[name].published
    known = counts.counts.get('classes', counts.input.get('classes'))
    assert registry.get(name).num_classes == known
    images = counts.counts.get('examples')
    if name.startswith('landmarks'):
      assert f'{images:,}' in registry.get(name).summary


@pytest.mark.parametrize(
  ('task', 'algorithm', 'expected'),
  [
    ('landmarks-user-160k', 'fedss', (0.01, 32, 64, 5_000, 1, 0.0)),
    ('landmarks-user-160k', 'fedavgm', (0.01, 32, 64, 5_000, 5, 4e-5)),
    ('landmarks-user-160k', 'fedir', (0.01, 32, 64, 5_000, 5, 4e-5)),
    ('inaturalist-geo-3k', 'fedavg', (0.01, 64, 10, 5_000, 1, 4e-5)),
    ('sop', 'fedss', (0.01, 32, 32, 2_000, 1, 0.0)),
    ('imagenet21k', 'fedss', (0.001, 32, 64, 25_000, 1, 0.0)),
  ],
)
def test_the_papers_hyperparameters(task, algorithm, expected):
  config = resolve(task, algorithm)
  values = config['hyperparameters']
  names = 'client_learning_rate', 'batch_size', 'clients_per_round'
  rest = values['local_epochs'], values['weight_decay']
  found = (*(values[n] for n in names), config['rounds'], *rest)
  assert found == expected
  if algorithm in ('fedss', 'fedavgm'):
    assert values['server_learning_rate'] == 1.0
    assert values['server_momentum'] == 0.9


def test_fedirs_target_is_uniform_where_classes_are_balanced():
  for task, target in (
    ('landmarks-user-160k', 'train'),
    ('gld23k', 'train'),
    ('inaturalist-user-120k', 'uniform'),
  ):
    values = resolve(task, 'fedir')['hyperparameters']
    assert values['importance_weights'] == target
  virtual = resolve('inaturalist-geo-3k', 'fedvc')['hyperparameters']
  assert (virtual['virtual_client_size'], virtual['batch_size']) == (256, 64)


def test_options_are_the_papers_networks():
  names = ('encoder', 'image_size', 'crop', 'embedding_dim')
  for task, changes, expected in (
    ('landmarks-user-160k', {}, ('mobilenet_v3', 224, 'random', 64)),
    (NAMES[2], {}, ('mobilenet_v2', 299, 'scale', None)),
    (NAMES[2], {'encoder': 'small'}, ('small', 299, 'scale', 64)),
  ):
    options = resolve(task, **changes)['options']
    assert tuple(map(options.get, names)) == expected


@pytest.mark.parametrize('number', range(1, 6))
def test_fedvcs_tables_have_its_network_crops_and_rates(number):
  table = papers.TABLES[f'fedvc/table{number}']
  rows = [row for row in table.rows if row.task in NAMES]
  assert rows
  for row in rows:
    config = resolve(row.task, row.algorithm, **row.changes)
    options, values = config['options'], config['hyperparameters']
    on_landmarks = row.task.startswith('landmarks')
    assert (options['encoder'], options['crop']) == ('mobilenet_v2', 'scale')
    assert options['image_size'] == (224 if on_landmarks else 299)
    assert options.get('embedding_dim') == (64 if on_landmarks else None)
    assert options.get('logits', 'linear') == 'linear'
    assert values['batch_size'] == (32 if on_landmarks else 64)
    assert values['client_learning_rate'] == 0.01
    assert values['weight_decay'] == 4e-5
    if row.algorithm == 'centralized':
      continue
    if values.get('virtual_client_size'):
      assert (values['virtual_client_size'], on_landmarks) == (256, False)
    else:
      assert values['local_epochs'] == (5 if on_landmarks else 1)
    assert config['rounds'] == row.changes.get('rounds', 5_000)
    assert values['clients_per_round'] == row.changes.get(
      'clients_per_round', 10
    )
    if row.algorithm == 'fedavgm':
      assert values['server_momentum'] == 0.9


@pytest.mark.parametrize(
  ('changes', 'message'),
  [
    ({'image_size': 0}, 'give the pixels a side'),
    ({'image_size': 16}, 'at least 32'),
    ({'split': 'nowhere.csv'}, 'nowhere.csv does not exist'),
    ({'algorithm': 'fedaws', 'logits': 'linear'}, 'needs cosine logits'),
    ({'logits': 'linear', 'logit_scale': 3.0}, '--logit_scale does not apply'),
  ],
)
def test_what_does_not_go_together_is_refused(changes, message):
  with pytest.raises(errors.InputError, match=message):
    resolve('landmarks-user-160k', **changes)


@pytest.mark.parametrize('name', NAMES)
def test_the_doctor_says_what_is_missing_and_where_it_comes_from(
  name, tmp_path
):
  task = registry.get(name)
  check = doctor.check_task_data(name, str(tmp_path), task.find)
  assert check.found == f'{name} cannot be loaded from {tmp_path}'
  assert 'has no images' in check.cure
  assert re.search(r'\d [GT]B', check.cure)
  assert 'https://' in check.cure
  command = f'python -m launch.make_splits {name} --input='
  assert (command in check.cure) == (name != 'gld23k')
  assert '\n' not in check.cure
  folder = tmp_path / task.data.split(':')[0]
  (folder / 'images').mkdir(parents=True)
  with pytest.raises(errors.InputError, match=r'has no images \(images, '):
    task.find(str(tmp_path))  # There is none in the folder.
  (folder / 'images' / 'a').mkdir()
  with pytest.raises(errors.InputError, match=r'^\S+ has no clients') as said:
    task.find(str(tmp_path))
  assert 'no images' not in str(said.value)
  (folder / name).mkdir()
  assert task.find(str(tmp_path)) == (
    f'images in {folder / "images"}, clients in {folder / name}'
  )


def test_published_files_are_taken_where_no_split_was_made(tmp_path):
  folder = tmp_path / 'inaturalist'
  (folder / 'train_val_images' / 'Aves').mkdir(parents=True)
  for name in ('iNaturalist_train.csv', 'iNaturalist_test.csv'):
    (folder / name).write_text('')
  assert registry.get('inaturalist-geo-3k').find(str(tmp_path)) == (
    f'images in {folder}/train_val_images, clients in'
    f' {folder}/iNaturalist_train.csv:geo_3k and {folder}/iNaturalist_test.csv'
  )


def test_landmarks_as_distributed_are_trained_on(tmp_path):
  """A folder of tars with a/b/c/ID.jpg, and TFF's split file."""
  ids, folder = [f'{i:016x}' for i in range(12)], tmp_path / 'landmarks'
  (folder / 'images').mkdir(parents=True)
  for part in range(2):
    made = tmp_path / f'made{part}'
    on_disk.write(made, [f'0/0/0/{name}.jpg' for name in ids[part::2]])
    on_disk.tarred(made, folder / 'images' / f'images_00{part}.tar')
    shutil.rmtree(made)
  train = [f'{i % 3},{name},{i % 4}' for i, name in enumerate(ids[:9])]
  test = [f'{name},{i % 4}' for i, name in enumerate(ids[9:])]
  for name, lines in (
    ('mini_gld_train_split.csv', ['user_id,image_id,class', *train]),
    ('mini_gld_test.csv', ['image_id,class', *test]),
  ):
    (folder / name).write_text('\n'.join(lines))
  task = registry.get('gld23k')
  small = {'encoder': 'small', 'image_size': 14}
  options = resolve('gld23k', **small)['options']
  dataset, model = task.load(str(tmp_path), options)
  assert (dataset.num_classes, len(dataset.test)) == (4, 3)
  assert len(dataset.train.client_ids) == 3
  assert isinstance(model.head, heads.CosineHead)
  x, _ = dataset.train.examples(dataset.train.client_ids[0])
  assert x.shape == (3, 16, 16, 3)  # 8/7 of 14, to be cropped.
  assert model.encoder.example_spec.shape == x.shape[1:]
  _, linear = task.load(str(tmp_path), {**options, 'logits': 'linear'})
  assert isinstance(linear.head, heads.LinearHead)


def test_tffs_own_files_need_no_split(tmp_path):
  on_disk.of_tff(tmp_path / 'landmarks' / 'gld23k')
  task = registry.get('gld23k')
  assert task.find(str(tmp_path)).endswith("gld23k, TFF's files")
  options = resolve('gld23k', encoder='small', image_size=14)['options']
  dataset, _ = task.load(str(tmp_path), options)
  assert dataset.train.client_ids == ['user0', 'user1', 'user2']
  assert len(dataset.test) == 4


def test_products_are_retrieved_from_their_zip(tmp_path, capsys):
  products = tmp_path / 'Stanford_Online_Products'
  ids = [f'{c}_final/{i}_0.JPG' for c in ('bicycle', 'mug') for i in range(4)]
  on_disk.write(products, ids)
  (tmp_path / 'sop').mkdir()
  shutil.make_archive(
    str(tmp_path / 'sop' / 'Stanford_Online_Products'),
    'zip',
    tmp_path,
    products.name,
  )
  split(tmp_path / 'sop' / 'sop', ids[:3] + ids[4:7], (ids[3], ids[7]))
  options = resolve('sop', encoder='small', image_size=16)['options']
  dataset, _ = registry.get('sop').load(str(tmp_path), options)
  assert dataset.num_classes == 2
  assert len(dataset.retrieval) == 2
  assert np.all(dataset.retrieval.y >= 2)
  assert 'has 2 classes, and the published split 11,318' in (
    capsys.readouterr().err
  )
