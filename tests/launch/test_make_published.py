"""`launch.make_splits` of data as their owners distribute them, and what trains."""

import dataclasses
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest

from datasets import examples
from datasets.images import clients
from datasets.images import decode
from datasets.splits import making
from datasets.splits import own
from datasets.splits import rules
from datasets.splits import split_files
from tests.datasets import imagenet21k_on_disk as imagenet21k
from tests.datasets import inaturalist_on_disk as inaturalist
from tests.datasets import landmarks_on_disk as landmarks
from tests.datasets import sop_on_disk as sop
from tests.datasets.images import on_disk as images_on_disk
from tests.launch import split_inputs
from tff_xc import errors

LANDMARKS = ('landmark_images', 'landmark_authors')
LANDMARKS += ('author_images', 'author_landmarks')
OF_PHOTOGRAPHS = {
  'landmarks-user-160k': {
    f'min_{name}': 12 if name.endswith('images') else 4 for name in LANDMARKS
  },
  'inaturalist-user-120k': {'images_per_class': 40},
  'inaturalist-geo-100': {'images_per_class': 40, 'least_share': 0.05},
}
OF_SHARDS = {'examples_per_shard': 2, 'shards_per_client': 2}
SMALL = {
  **OF_PHOTOGRAPHS,
  'sop': {'examples_per_client': 5},
  'imagenet21k': {'test_share': 0.4, **OF_SHARDS},
}
lines = split_inputs.lines


@pytest.fixture(name='no_pictures', autouse=True)
def _no_pictures(request, monkeypatch):
  if 'pictures' not in request.node.name:
    monkeypatch.setattr(making, '_draw', lambda folder, made: None)


def make(rule, source, output, seed=0, **changes):
  changes = {**SMALL.get(rule, {}), **changes}
  split_inputs.make(rule, source, output, seed=seed, **changes)
  return split_inputs.summary(output)


def write(rule, folder, **options):
  if rule.startswith('landmarks'):
    return landmarks.write(folder, landmarks.images(), **options)
  if rule == 'sop':
    return sop.write(folder, *sop.lists())
  if rule == 'imagenet21k':
    folder.mkdir()
    return imagenet21k.as_text(folder)
  return inaturalist.write(folder, inaturalist.content(), **options)


@pytest.mark.parametrize('rule', OF_PHOTOGRAPHS)
def test_a_split_has_the_classes_that_remain(rule, tmp_path):
  source = write(rule, tmp_path / 'in')
  summary = make(rule, source, tmp_path / 'out')
  classes = lines(tmp_path / 'out' / 'classes.csv')
  train = lines(tmp_path / 'out' / 'federated_train.csv')
  tests = lines(tmp_path / 'out' / 'test.csv')
  assert [int(c['class']) for c in classes] == list(range(len(classes)))
  assert summary['classes'] == len(classes) > 5
  assert {row['class'] for row in tests} <= {c['class'] for c in classes}
  assert len(tests) == summary['test_examples'] > 10
  assert not {r['image_id'] for r in train} & {r['image_id'] for r in tests}
  found = split_files.read(tmp_path / 'out').examples
  assert found.class_names == [c['name'] for c in classes]
  assert len(found.train) == summary['examples'] == len(train)
  if rule.startswith('landmarks'):
    right = {image: name for image, name, _ in landmarks.images()}
  else:
    data = inaturalist.content()
    categories = data['train2017.json']['categories']
    name_of = {item['id']: item['name'] for item in categories}
    right = {
      f'{part}{item["image_id"]:08x}': name_of[item['category_id']]
      for part in ('train', 'val')
      for item in data[f'{part}2017.json']['annotations']
    }
  for row in train + tests:
    name = classes[int(row['class'])]['name']
    assert re.sub(r'( \d+) \d+$', r'\1', name) == right[row['image_id']]


@pytest.mark.parametrize('rule', SMALL)
def test_the_same_files_and_seed_make_the_same_split(rule, tmp_path):
  made = []
  for name, seed in (('a', 0), ('b', 0), ('c', 1)):
    source = write(rule, tmp_path / f'in_{name}')
    make(rule, source, tmp_path / name, seed=seed)
    files = (tmp_path / name).glob('*.csv')
    made.append({file.name: file.read_bytes() for file in files})
  assert made[0] == made[1]
  assert (made[0] != made[2]) == (rule != 'sop')


@pytest.mark.parametrize(
  'rule', ['inaturalist-user-120k', 'inaturalist-geo-100']
)
def test_inaturalist_draws_as_many_of_each_class(rule, tmp_path):
  source = write(rule, tmp_path / 'in', zipped=False)
  all_cells = {'least_share': 0.0} if 'geo' in rule else {}
  summary = make(rule, source, tmp_path / 'out', **all_cells)
  found = inaturalist.content()
  sizes = np.bincount(
    [a['category_id'] for a in found['train2017.json']['annotations']]
  )
  assert summary['classes'] == (sizes >= 40).sum()
  known = {
    f'train{item["id"]:08x}': item['user_id' if 'user' in rule else 'lat']
    for item in found['train2017_locations.json']
  }
  train = lines(tmp_path / 'out' / 'federated_train.csv')
  assert all(known[row['image_id']] is not None for row in train)
  counts = [int(c['count']) for c in lines(tmp_path / 'out' / 'classes.csv')]
  assert max(counts) <= 40 and sum(counts) > 0.85 * 40 * len(counts)
  assert summary['examples'] + summary['examples_unused'] == 600
  if 'user' in rule:
    for row in train:
      assert row['user_id'] == str(known[row['image_id']])


def test_the_test_list_of_sop_becomes_the_retrieval_part(tmp_path):
  train, test = sop.lists()
  summary = make('sop', sop.write(tmp_path, train, test), tmp_path / 'out')
  assert summary['clients'] == 8
  assert summary['retrieval_examples'] == len(test)
  assert summary['retrieval_classes'] == 3
  assert summary['examples_unused'] == summary['test_examples'] == 0
  for name, expected in (('federated_train', train), ('retrieval', test)):
    found = lines(tmp_path / 'out' / f'{name}.csv')
    assert {r['image_id']: int(r['class']) for r in found} == {
      row[3]: row[1] - 1 for row in expected
    }
  assert not (tmp_path / 'out' / 'test.csv').exists()


@pytest.mark.parametrize('pack', ['folder', 'zip'])
def test_images_of_sop_train_and_are_retrieved(tmp_path, pack):
  """From the lists to the clients: whatever the photographs lie in."""
  train, test = sop.lists()
  folder = sop.write(tmp_path / 'data', train, test)
  sop.write_images(folder, train, test)
  make('sop', folder, tmp_path / 'out', test_fraction=0.2)
  data = folder
  if pack == 'zip':
    data = shutil.make_archive(tmp_path / 'sop', 'zip', folder.parent)
  choice = own.Choice(str(tmp_path / 'out'))
  dataset = clients.load(data, choice, side=16)
  place = {row[3]: i for i, row in enumerate([*train, *test])}
  class_of = {row[3]: row[1] - 1 for row in [*train, *test]}
  assert dataset.num_classes == 6
  np.testing.assert_array_equal(
    dataset.retrieval.y, [class_of[row[3]] for row in test]
  )
  for number, (_, _, _, path) in enumerate(test):
    image = decode.square(images_on_disk.photograph(place[path]), 16)
    np.testing.assert_array_equal(
      dataset.retrieval.examples(np.array([number])).x[0], image
    )
  held = lines(tmp_path / 'out' / 'test.csv')
  assert dataset.test.y.tolist() == [class_of[r['image_id']] for r in held]
  for client in dataset.train.client_ids:
    expected = [
      class_of[r['image_id']]
      for r in lines(tmp_path / 'out' / 'federated_train.csv')
      if r['user_id'] == client
    ]
    assert sorted(dataset.train.labels(client)) == sorted(expected)


def test_damaged_images_leave_the_other_parts_alone(tmp_path):
  train, test = sop.lists()
  folder = sop.write(tmp_path / 'data', train, test)
  sop.write_images(folder, train, test)
  make('sop', folder, tmp_path / 'out')
  (folder / test[2][3]).write_bytes(b'no image')
  (folder / train[0][3]).unlink()
  choice = own.Choice(str(tmp_path / 'out'))
  dataset = clients.load(folder, choice, side=16)
  left = [row[1] - 1 for i, row in enumerate(test) if i != 2]
  assert dataset.retrieval.y.tolist() == left
  assert sum(dataset.train.partition.sizes) == len(train) - 1
  assert dataset.num_classes == 6
  # Other data have no such part, and say so.
  data = examples.of_labels(np.zeros(3, np.int32))
  with pytest.raises(errors.InputError, match=r'retrieval\.csv'):
    own.parts(data, choice, 'a.npz', '')


def test_imagenets_folders_tars_and_list_have_one_split(tmp_path):
  found = []
  for name in ('folders', 'tars', 'tar_of_tars', 'as_text'):
    (tmp_path / name).mkdir()
    source = getattr(imagenet21k, name)(tmp_path / name)
    summary = make('imagenet21k', source, tmp_path / name / 'out')
    files = (tmp_path / name / 'out').glob('*.csv')
    found.append(
      [summary['fingerprint'], {f.name: f.read_text() for f in files}]
    )
  assert found[1:] == found[:1] * 3
  assert set(found[0][1]) == {'federated_train.csv', 'test.csv', 'classes.csv'}


def test_images_in_tars_are_the_clients_of_a_split_of_the_list(tmp_path):
  make('imagenet21k', imagenet21k.as_text(tmp_path), tmp_path / 'out')
  choice = own.Choice(str(tmp_path / 'out'))
  sets = [
    clients.load(source, choice, side=16)
    for source in (imagenet21k.tar_of_tars(tmp_path), tmp_path / 'folders')
  ]
  assert sets[0].source_checksum == sets[1].source_checksum
  assert len(sets[0].test.y) == len(lines(tmp_path / 'out' / 'test.csv'))
  for client in sets[0].train.client_ids:
    for one, other in zip(
      *(s.train.examples(client) for s in sets), strict=True
    ):
      np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize('name', SMALL)
def test_differences_from_what_was_published_are_told(
  name, tmp_path, monkeypatch, capsys
):
  source = write(name, tmp_path / 'in')
  summary = make(name, source, tmp_path / '0')
  report, real = summary['published'], rules.get(name)
  assert not report['is_the_input'] and not report['is_the_rule']
  fact, published = next(iter(real.published.input.items()))
  assert report['input'][fact] == {
    'published': published,
    'found': summary['facts'][fact],
  }
  setting, value = next(iter(SMALL[name].items()))
  said = capsys.readouterr().err
  assert f'{fact} {summary["facts"][fact]:,}, published {published:,}' in said
  assert f'--{setting} {value}, published' in said
  # As if this tiny input and these settings had been published.
  like = dataclasses.replace(
    real,
    flags=tuple(
      dataclasses.replace(f, default=SMALL[name].get(f.name, f.default))
      for f in real.flags
    ),
  )
  counts = {n: summary[n] for n in real.published.counts}
  other = next(n for n in counts if n not in real.published.drawn)
  for more, expected in ((0, 'as published'), (2, 'warning: the input is')):
    known = rules.Published(
      {n: summary['facts'][n] for n in real.published.input},
      {**counts, other: counts[other] + more},
      real.published.drawn,
      'so it is',
    )
    monkeypatch.setitem(
      rules.RULES, name, dataclasses.replace(like, published=known)
    )
    made = make(name, source, tmp_path / f'more{more}')['published']
    assert made['is_the_input'] and made['is_the_rule']
    assert set(made['counts']) == ({other} if more else set())
    told = capsys.readouterr().err
    assert expected in told
    assert ('(so it is)' in told) == bool(more)
    drawn = 'of a draw that was not published: clients' in told
    assert drawn == name.startswith('inaturalist')


def test_pictures_have_a_map_where_places_are_known(tmp_path):
  for rule in ('inaturalist-geo-100', 'inaturalist-user-120k'):
    make(rule, write(rule, tmp_path / 'in'), tmp_path / rule)
    assert (tmp_path / rule / 'map.png').exists() == ('geo' in rule)
    assert (tmp_path / rule / 'clients.png').exists()


def test_the_command(tmp_path):
  source = write('landmarks', tmp_path / 'in', packed=True)
  given = OF_PHOTOGRAPHS['landmarks-user-160k'].items()
  done = subprocess.run(
    [
      *(sys.executable, '-m', 'launch.make_splits', 'landmarks-user-160k'),
      *(f'--input={source}', f'--output={tmp_path / "out"}'),
      *(f'--{name}={value}' for name, value in given),
    ],
    capture_output=True,
    text=True,
    check=True,
  )
  assert 'note: the input is not the published one' in done.stderr
  assert done.stdout.endswith(f'written to {tmp_path / "out"}\n')
  without = sum(not author for _, _, author in landmarks.images())
  assert re.search(rf'without author +{without}\n', done.stdout)


def test_an_input_that_is_none_or_too_small(tmp_path):
  for rule in OF_PHOTOGRAPHS:
    for path in (tmp_path, tmp_path / 'none'):
      with pytest.raises(errors.InputError, match=r'--input=.* has no '):
        make(rule, path, tmp_path / 'out')
  source = write('inaturalist', tmp_path / 'in')
  with pytest.raises(errors.InputError, match='no class has 500 images'):
    make('inaturalist-geo-1k', source, tmp_path / 'out', images_per_class=500)
