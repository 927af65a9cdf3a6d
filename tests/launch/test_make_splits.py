"""`launch.make_splits`: every rule on every input; it writes a whole split or nothing.

Other tests use data in the format of their owners, from the lists to the clients.
"""

import dataclasses
import json
import re
import shutil

import numpy as np
import pandas as pd
import pytest

from datasets import cifar, examples, photographs
from datasets.readers import decode
from datasets.splits import deal, making, rules, split_files
from launch import make_splits
from tests.datasets import (
  cifar_on_disk as cifar_on_disk,
  imagenet21k_on_disk as imagenet21k,
  images_on_disk as images_on_disk,
  inaturalist_on_disk as inaturalist,
  landmarks_on_disk as landmarks,
  sop_on_disk as sop,
)
from tests.datasets.leaf import on_disk as leaf
from tests.launch import light, test_compare
from tff_xc import errors


def as_csv(folder):
  """Writes a table with 48 rows, 6 classes and 10 users."""
  rows = [
    {'class': f'c{i % 6}', 'user_id': f'u{i % 10}', 'image_id': f'{i}.jpg'} for i in range(48)
  ]
  pd.DataFrame(rows).to_csv(folder / 'table.csv', index=False)
  return folder / 'table.csv'


def as_images(folder):
  for i in range(48):
    path = folder / 'images' / f'c{i % 6}' / f'{i}.jpg'
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b'')
  return folder / 'images'


def as_xc(folder):
  random = np.random.default_rng(0)
  content = ['60 5 8']
  for i in range(60):
    labels = sorted(set((random.zipf(1.5, 3) % 8).tolist())) if i else []
    content.append(f'{",".join(map(str, labels))} {i % 5}:1')
  (folder / 'set_train.txt').write_text('\n'.join(content) + '\n')
  return folder


COLUMNS = {'label': 'class', 'user': None, 'id': None}


OF_PHOTOGRAPHS = {
  'landmarks-user-160k': {
    'min_landmark_images': 12,
    'min_landmark_authors': 4,
    'min_author_images': 12,
    'min_author_landmarks': 4,
  },
  'inaturalist-user-120k': {'images_per_class': 40},
  'inaturalist-geo-100': {'images_per_class': 40, 'least_share': 0.05},
}
PUBLISHED = {
  **OF_PHOTOGRAPHS,
  'sop': {'examples_per_client': 5},
  'imagenet21k': {'test_share': 0.4, 'examples_per_shard': 2, 'shards_per_client': 2},
}
FILES = {
  'federated_train.csv',
  'classes.csv',
  'summary.json',
  'clients.png',
  'class_counts.png',
  'labels.png',
}
# Settings with which tiny inputs are enough.
SMALL = {
  'dirichlet': {'clients': 4},
  'iid': {'clients': 4},
  'classes_per_client': {'classes_per_client': 2, 'clients_per_class': 2},
  'chunks': {'examples_per_client': 7},
  'shards': {'clients': 4},
  'frequent_labels': {'clients': 3},
  **PUBLISHED,
}


@pytest.fixture(name='no_pictures', autouse=True)
def _no_pictures(request, monkeypatch):
  """Skips pictures, which take most of the time, unless the test's name contains 'pictures'."""
  if 'pictures' not in request.node.name:
    monkeypatch.setattr(making, '_draw', lambda folder, made: None)


def make(
  rule, source, output, columns=COLUMNS, seed=0, test_fraction=0.0, test_per_class=0, **changes
):
  settings = rules.get(rule).settings(**SMALL.get(rule, {}) | changes)
  request = rules.Request(rule, settings, seed, test_fraction, test_per_class)
  return make_splits.make(request, str(source), columns, str(output))


def summary_of(output):
  return json.loads((output / 'summary.json').read_text())


@pytest.mark.parametrize('write', [as_csv, as_xc])
def test_every_rule_on_a_table_and_on_sets_of_labels(write, tmp_path):
  source = write(tmp_path)
  for name, rule in rules.RULES.items():
    if rule.read:  # This rule accepts only one kind of input; see below.
      continue
    output = tmp_path / 'out' / name
    if (rule.users and write is as_xc) or (rule.labels == 'sets' and write is as_csv):
      with pytest.raises(errors.InputError, match='rule'):
        make(name, source, output)
      assert not output.exists()
      continue
    assert make(name, source, output).endswith(f'written to {output}\n')
    summary = summary_of(output)
    train = test_compare.read_csv(output / 'federated_train.csv')
    assert summary['examples'] == len(train) > 0
    assert summary['clients'] == len({row['user_id'] for row in train})
    counted = sum(int(row['count']) for row in test_compare.read_csv(output / 'classes.csv'))
    assert counted == sum(len(row['class'].split()) for row in train)
    assert (output / 'test.csv').exists() == rule.makes_test
    if rule.makes_test:
      held_out = {row['image_id'] for row in test_compare.read_csv(output / 'test.csv')}
      assert not held_out & {row['image_id'] for row in train}
      assert len(held_out) == summary['test_examples'] == 5


def test_a_split_of_images_is_read_back(tmp_path):
  output = tmp_path / 'out'
  make('dirichlet', as_images(tmp_path), output, test_per_class=2)
  ids = sorted(f'c{i % 6}/{i}.jpg' for i in range(48))
  labels = np.array([int(name[1]) for name in ids])
  data = dataclasses.replace(examples.of_labels(labels), ids=examples.texts([ids]))
  split = split_files.read(output)
  test = split_files.join(data, split, split.examples.test, '')
  train = deal.parts(data, deal.Choice(str(output)), '').clients
  assert np.bincount(labels[test]).tolist() == [2] * 6
  both = np.sort(np.concatenate([train.numbers, test]))
  np.testing.assert_array_equal(both, np.arange(48))
  assert train.client_ids == list('0123')
  assert test_compare.read_csv(output / 'classes.csv')[1] == {
    'class': '1',
    'name': 'c1',
    'count': '6',
  }


def test_a_split_of_cifar_is_the_tasks_partition(tmp_path, monkeypatch):
  monkeypatch.setattr(cifar, 'OFFICIAL', cifar_on_disk.COUNTS['cifar10'])
  source = cifar_on_disk.write(tmp_path, cifar_on_disk.files('cifar10', 'binary'))
  with pytest.raises(errors.InputError, match='has a test part; leave out'):
    make('chunks', source, tmp_path / 'out', test_fraction=0.1)
  make('dirichlet', source, tmp_path / 'out', seed=3)
  found = cifar_on_disk.load(tmp_path, split=tmp_path / 'out').train
  data = examples.of_labels(found.pool.labels)
  expected = rules.deal('dirichlet', data, 3, **SMALL['dirichlet']).train
  found = found.partition
  assert found.client_ids == expected.client_ids
  np.testing.assert_array_equal(found.numbers, expected.numbers)
  np.testing.assert_array_equal(found.offsets, expected.offsets)


def contents(folder):
  return {p.name: (p.read_bytes(), p.stat().st_mtime_ns) for p in folder.iterdir()}


def test_nothing_is_overwritten_and_the_same_split_is_left_with_its_pictures(tmp_path, monkeypatch):
  source, output = as_csv(tmp_path), tmp_path / 'out'
  make('shards', source, output)
  before = contents(output)
  assert set(before) == FILES
  text = make('shards', source, output)
  assert text.endswith(f'{output} holds this split already\n')

  def refused(message, rule='shards', where=output, **options):
    with pytest.raises(errors.InputError, match=message):
      make(rule, source, where, **options)

  for change in ({'seed': 1}, {'clients': 5}, {'test_fraction': 0.1}):
    refused('nothing is overwritten', **change)
  refused(r'request \(rule\)', 'users')
  for other in (tmp_path, source):
    refused('holds something else', where=other)
  source.write_text(source.read_text().replace('c5', 'c6'))
  refused('a split of other data')
  source.write_text(source.read_text().replace('c6', 'c5'))
  assert contents(output) == before
  # The environment variable of --picture_format.
  monkeypatch.setenv('TFF_XC_PICTURE_FORMAT', 'svg')
  assert make('shards', source, output) == text
  svgs = {name.replace('png', 'svg') for name in FILES if name.endswith('png')}
  assert set(contents(output)) == FILES | svgs
  (tmp_path / 'empty').mkdir()
  make('shards', source, tmp_path / 'empty')


def test_after_an_error_nothing_is_left(tmp_path, monkeypatch):
  source, output = as_csv(tmp_path), tmp_path / 'new' / 'out'

  def fail(folder, made):
    raise OSError(28, 'No space left on device')

  monkeypatch.setattr(making, '_draw', fail)
  with pytest.raises(errors.InputError, match=r'cannot be written \(No space'):
    make('chunks', source, output)
  assert list(output.parent.iterdir()) == []


def test_inspecting_a_split_of_somebody_else(tmp_path):
  source, output = tmp_path / 'iNaturalist_train.csv', tmp_path / 'out'
  source.write_text('image_id,class,user_120k,geo_100\na,5,u1,NA\nb,5,u2,7\nc,9,u2,7\nd,7,NA,3\n')
  make_splits.make(None, str(source), {**COLUMNS, 'user': 'user_120k'}, str(output))
  summary = summary_of(output)
  assert (summary['clients'], summary['examples'], summary['examples_unused']) == (2, 3, 1)
  assert (summary['classes'], summary['classes_held']) == (3, 2)
  # p is 2/3, 1/3. The clients differ by 1/3 and 1/6 in each of the two classes.
  assert summary['emd'] == pytest.approx((1 * 2 / 3 + 2 * 1 / 3) / 3)
  assert {p.name for p in output.iterdir()} == {'classes.csv', 'summary.json'}
  assert 'clients                        2\n' in make_splits.make(
    None, f'{source}:geo_100', COLUMNS, None
  )
  sets = tmp_path / 'sets.csv'
  sets.write_text('image_id,class,user_id\na,0 2,u\nb,2,u\n')
  # A class cell with several numbers is a set of labels.
  assert 'classes                        3\n' in make_splits.make(None, str(sets), COLUMNS, None)
  sets.write_text('image_id,class,user_id\na,0,u\nb,,u\n')
  with pytest.raises(errors.InputError, match='example 2'):
    make_splits.make(None, str(sets), COLUMNS, None)
  for where, word in ((None, r'FILE\.csv:COLUMN'), (tmp_path, 'holds something else')):
    with pytest.raises(errors.InputError, match=word):
      make_splits.make(None, str(source), COLUMNS, where and str(where))


def test_help_of_a_rule_has_its_flags_only():
  text = light.call('make_splits', '--seed=3', 'sop', '--help').stdout
  own = {flag.name for flag in rules.RULES['sop'].flags}
  every = {f.name for rule in rules.RULES.values() for f in rule.flags}
  shown = {*re.findall(r'^  --(\w+):', text, re.MULTILINE)}
  assert shown & every == own
  assert {'input', 'output', 'seed'} <= shown


@pytest.mark.slow
def test_a_splits_pictures_do_not_join_its_images(tmp_path):
  source = as_images(tmp_path)
  for output in (source / 'new/split', tmp_path / 'a/../images/c0/s'):
    with pytest.raises(errors.InputError, match=r'lies in --input=.*images,'):
      make('chunks', source, output)
  assert not (source / 'new').exists()
  make('chunks', as_xc(tmp_path), tmp_path / 'images' / 'text')
  # Folders beside lists that name the images are accepted, too.
  source = sop.write(tmp_path, *sop.lists())
  make('sop', source, source / 'sop')
  assert (source / 'sop' / 'retrieval.csv').exists()


# -- Data in the format of their owners. --


def distributed(rule, folder):
  if rule.startswith('landmarks'):
    return landmarks.write(folder, landmarks.images())
  if rule == 'sop':
    return sop.write(folder, *sop.lists())
  if rule == 'imagenet21k':
    folder.mkdir()
    return imagenet21k.as_text(folder)
  return inaturalist.write(folder, inaturalist.content())


@pytest.mark.parametrize('rule', PUBLISHED)
def test_the_same_files_and_seed_make_the_same_split(rule, tmp_path):
  made = []
  for name, seed in (('a', 0), ('b', 0), ('c', 1)):
    make(rule, distributed(rule, tmp_path / f'in_{name}'), tmp_path / name, seed=seed)
    made.append({file.name: file.read_bytes() for file in (tmp_path / name).glob('*.csv')})
  assert made[0] == made[1]
  assert (made[0] != made[2]) == (rule != 'sop')


@pytest.mark.parametrize('pack', ['folder', 'zip'])
def test_images_of_sop_train_and_are_retrieved(tmp_path, pack):
  """From the lists to the clients, for folders and archives of photographs."""
  train, test = sop.lists()
  folder = sop.write(tmp_path / 'data', train, test)
  sop.write_images(folder, train, test)
  make('sop', folder, tmp_path / 'out', test_fraction=0.2)
  data = folder
  if pack == 'zip':
    data = shutil.make_archive(tmp_path / 'sop', 'zip', folder.parent)
  dataset = photographs.load(data, deal.Choice(str(tmp_path / 'out')), side=16)
  class_of = {row[3]: row[1] - 1 for row in [*train, *test]}
  assert dataset.num_classes == 6
  assert dataset.retrieval.labels.tolist() == [class_of[row[3]] for row in test]
  shown = dataset.retrieval.examples(np.arange(len(test))).x
  for number, image in enumerate(shown, len(train)):
    expected = decode.square(images_on_disk.photograph(number), 16)
    np.testing.assert_array_equal(image, expected)
  held = test_compare.read_csv(tmp_path / 'out' / 'test.csv')
  assert dataset.test.labels.tolist() == [class_of[r['image_id']] for r in held]
  rows = test_compare.read_csv(tmp_path / 'out' / 'federated_train.csv')
  for client in dataset.train.client_ids:
    expected = sorted(class_of[r['image_id']] for r in rows if r['user_id'] == client)
    assert sorted(dataset.train.labels(client)) == expected


@pytest.mark.parametrize('name', PUBLISHED)
def test_differences_from_what_was_published_are_told(name, tmp_path, capsys):
  make(name, distributed(name, tmp_path / 'in'), tmp_path / '0')
  summary = summary_of(tmp_path / '0')
  report, real = summary['published'], rules.get(name)
  assert not report['is_the_input'] and not report['is_the_rule']
  fact, published = next(iter(real.published.input.items()))
  assert report['input'][fact] == {'published': published, 'found': summary['facts'][fact]}
  setting, value = next(iter(PUBLISHED[name].items()))
  said = capsys.readouterr().err
  assert f'{fact} {summary["facts"][fact]}, published {published}' in said
  assert f'{setting} {value}, published' in said


def test_a_user_of_both_parts_of_leaf_has_its_test_examples(tmp_path):
  users = {'ann': ([0, 0], [0, 1]), 'bob': ([0], [1])}
  leaf.write(tmp_path / 'in' / 'train' / 'a.json', users)
  leaf.write(tmp_path / 'in' / 'test' / 'a.json', {**users, 'cy': ([0], [0])})
  make('users', tmp_path / 'in', tmp_path / 'out')
  rows = test_compare.read_csv(tmp_path / 'out' / 'test.csv')
  assert [row['user_id'] for row in rows] == ['ann', 'ann', 'bob', 'NA']


def test_columns_that_a_rule_does_not_read_are_refused(tmp_path):
  source = distributed('sop', tmp_path / 'in')
  with pytest.raises(errors.InputError, match='--user_column'):
    make('sop', source, tmp_path / 'out', {**COLUMNS, 'user': 'who'})


def test_an_input_that_is_none_or_too_small(tmp_path):
  for rule in OF_PHOTOGRAPHS:
    for path in (tmp_path, tmp_path / 'none'):
      with pytest.raises(errors.InputError, match=r'--input=.* has no '):
        make(rule, path, tmp_path / 'out')
  source = distributed('inaturalist', tmp_path / 'in')
  with pytest.raises(errors.InputError, match='no class has 500 images'):
    make('inaturalist-geo-1k', source, tmp_path / 'out', images_per_class=500)
