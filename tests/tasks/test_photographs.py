"""The papers' photographs: their settings, and messages if files are missing."""

import shutil

import numpy as np
import pytest

from datasets.splits import rules
from launch import make_splits, plan
from tasks import configuration, experiment, photographs, registry
from tests.datasets import images_on_disk, sop_on_disk as sop
from tff_xc import errors, heads
from tff_xc.report import run_files

NAMES = [task.name for task in photographs.TASKS]


def resolve(task, algorithm='fedss', **changes):
  return configuration.resolve(task, algorithm, changes)


def split(folder, ids, retrieval):
  """Writes a split of the images `CLASS/NAME` for two users."""
  folder.mkdir(parents=True)

  def of(name):
    return f'{name},{name.split("/")[0]}'

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


V3 = {'encoder': 'mobilenet_v3', 'image_size': 224, 'crop': 'random'}
MOMENTUM = {'server_learning_rate': 1.0, 'server_momentum': 0.9}


@pytest.mark.parametrize(
  ('task', 'algorithm', 'of_clients', 'more'),
  [
    # Learning rate, batch size, clients per round, rounds, epochs, weight decay.
    (
      'landmarks-user-160k',
      'fedss',
      (0.01, 32, 64, 5_000, 1, 0.0),
      {**V3, 'embedding_dim': 64, **MOMENTUM},
    ),
    ('landmarks-user-160k', 'fedavgm', (0.01, 32, 64, 5_000, 5, 4e-5), MOMENTUM),
    (
      'landmarks-user-160k',
      'fedir',
      (0.01, 32, 64, 5_000, 5, 4e-5),
      {'importance_weights': 'train'},
    ),
    ('gld23k', 'fedir', (), {'importance_weights': 'train'}),
    (
      'inaturalist-geo-3k',
      'fedavg',
      (0.01, 64, 10, 5_000, 1, 4e-5),
      {'encoder': 'mobilenet_v2', 'image_size': 299, 'crop': 'scale'},
    ),
    ('inaturalist-geo-3k', 'fedvc', (), {'virtual_client_size': 256, 'batch_size': 64}),
    # The classes of this data set are balanced.
    ('inaturalist-user-120k', 'fedir', (), {'importance_weights': 'uniform'}),
    ('sop', 'fedss', (0.01, 32, 32, 2_000, 1, 0.0), {**V3, **MOMENTUM}),
    ('imagenet21k', 'fedss', (0.001, 32, 64, 25_000, 1, 0.0), {**V3}),
  ],
)
def test_the_papers_settings(task, algorithm, of_clients, more):
  config = run_files.flat(resolve(task, algorithm))
  names = (
    'client_learning_rate',
    'batch_size',
    'clients_per_round',
    'rounds',
    'local_epochs',
    'weight_decay',
  )
  expected = dict(zip(names, of_clients, strict=False)) | more
  assert expected.items() <= config.items()
  assert ('embedding_dim' in config) == (not task.startswith('inaturalist'))


@pytest.mark.parametrize('name', NAMES)
def test_the_task_says_what_is_missing_and_where_it_comes_from(name, tmp_path):
  task = registry.get(name)
  with pytest.raises(errors.InputError) as told:
    plan.Planner(name, {'data_dir': str(tmp_path)}).make()
  command = f'python -m launch.make_splits {name} --input='
  assert (command in str(told.value)) == (name != 'gld23k')
  folder = tmp_path / task.data.split(':')[0]
  images = folder / 'images'
  for made, lacks in ((images, 'has no images'), (images / 'a', 'has no clients')):
    made.mkdir(parents=True)
    with pytest.raises(errors.InputError, match=lacks):
      task.find(str(tmp_path))
  (folder / name).mkdir()
  assert task.find(str(tmp_path)) == f'images in {images}, clients in {folder / name}'


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
  """The data are a folder of tars with a/b/c/ID.jpg, and TFF's split file."""
  ids, folder = [f'{i:016x}' for i in range(12)], tmp_path / 'landmarks'
  (folder / 'images').mkdir(parents=True)
  for part in range(2):
    made = tmp_path / f'made{part}'
    images_on_disk.write(made, [f'0/0/0/{name}.jpg' for name in ids[part::2]])
    images_on_disk.tarred(made, folder / 'images' / f'images_00{part}.tar')
    shutil.rmtree(made)
  train = [f'{i % 3},{name},{i % 4}' for i, name in enumerate(ids[:9])]
  test = [f'{name},{i % 4}' for i, name in enumerate(ids[9:])]
  for name, lines in (
    ('mini_gld_train_split.csv', ['user_id,image_id,class', *train]),
    ('mini_gld_test.csv', ['image_id,class', *test]),
  ):
    (folder / name).write_text('\n'.join(lines))
  task = registry.get('gld23k')
  options = resolve('gld23k', encoder='small', image_size=14)['options']
  dataset, model = task.load(str(tmp_path), options)
  assert (dataset.num_classes, len(dataset.test)) == (4, 3)
  assert len(dataset.train.client_ids) == 3
  assert isinstance(model.head, heads.CosineHead)
  x, _ = dataset.train.examples(dataset.train.client_ids[0])
  assert x.shape == (3, 16, 16, 3)  # The side is 8/7 of 14, because training crops the images.
  assert model.encoder.example_spec.shape == x.shape[1:]
  _, linear = task.load(str(tmp_path), {**options, 'logits': 'linear'})
  assert isinstance(linear.head, heads.LinearHead)


def test_tffs_own_files_need_no_split(tmp_path):
  images_on_disk.of_tff(tmp_path / 'landmarks' / 'gld23k')
  task = registry.get('gld23k')
  assert task.find(str(tmp_path)).endswith("gld23k, TFF's files")
  options = resolve('gld23k', encoder='small', image_size=14)['options']
  dataset, _ = task.load(str(tmp_path), options)
  assert dataset.train.client_ids == ['user0', 'user1', 'user2']
  assert len(dataset.test) == 4


def test_products_are_retrieved_from_their_zip(tmp_path, capsys):
  ids = [f'{c}_final/{i}_0.JPG' for c in ('bicycle', 'mug') for i in range(4)]
  images_on_disk.write(tmp_path / sop.FOLDER, ids)
  split(tmp_path / 'sop' / 'sop', ids[:3] + ids[4:7], (ids[3], ids[7]))
  path = str(tmp_path / 'sop' / sop.FOLDER)
  shutil.make_archive(path, 'zip', tmp_path, sop.FOLDER)
  options = resolve('sop', encoder='small', image_size=16)['options']
  dataset, _ = registry.get('sop').load(str(tmp_path), options)
  assert dataset.num_classes == 2
  assert len(dataset.retrieval) == 2
  assert np.all(dataset.retrieval.labels >= 2)
  assert 'published split has 11,318' in capsys.readouterr().err


@pytest.mark.slow
def test_the_whole_path(tmp_path, in_process):
  """From the owners' lists and JPEGs to a split, rounds and retrieval."""
  lists = sop.lists([20] * 6, [4] * 3)
  folder = sop.write(tmp_path / 'sop', *lists)
  sop.write_images(folder, *lists)
  settings = rules.get('sop').settings(examples_per_client=40)
  request, output = rules.Request('sop', settings), tmp_path / 'sop' / 'sop'
  make_splits.make(request, str(folder), {}, str(output))

  def run(algorithm, name, **changes):
    given = {
      'data_dir': str(tmp_path),
      'image_size': 32,
      'rounds': 2,
      'clients_per_round': 2,
      'eval_every': 2,
      **changes,
    }
    config = configuration.resolve('sop', algorithm, given)
    return experiment.assemble(config).run(str(tmp_path / name))

  final = run('fedss', 'fedss', negatives=4, local_steps=1)['final']
  assert set(final) == {'map@10', 'map@r', 'train_top1'}
  assert np.isfinite(list(final.values())).all()
  sent = {}
  for trained in ('bottleneck', 'all'):
    given = {'virtual_client_size': 32, 'encoder': 'mobilenet_v2'}
    summary = run('fedavgm', trained, trainable=trained, **given)
    sent[trained] = summary['bytes_up_per_client_round']
  # 6 classes, and the layer from 1,280 to 64, of 2.3 million parameters.
  expected = 4 * (6 * 64 + 1281 * 64)
  assert sent['bottleneck'] == pytest.approx(expected, rel=0.01)
  assert sent['all'] > 20 * expected
