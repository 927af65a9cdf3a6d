"""`launch.make_splits` of photographs as their owners distribute them."""

import csv
import json
import re
import subprocess
import sys

import numpy as np
import pytest

from datasets.splits import output as output_lib
from datasets.splits import rules
from datasets.splits import split_folder
from launch import make_splits
from tests.datasets.inaturalist import on_disk as inaturalist
from tests.datasets.landmarks import on_disk as landmarks
from tff_xc import errors

COLUMNS = {'label': 'class', 'user': None, 'id': None}
SMALL = {
  'landmarks-user-160k': {
    'min_landmark_images': 12,
    'min_landmark_authors': 4,
    'min_author_images': 12,
    'min_author_landmarks': 4,
  },
  'inaturalist-user-120k': {'images_per_class': 40},
  'inaturalist-geo-100': {'images_per_class': 40, 'least_share': 0.05},
}


@pytest.fixture(name='no_pictures', autouse=True)
def _no_pictures(request, monkeypatch):
  if 'pictures' not in request.node.name:
    monkeypatch.setattr(output_lib, '_draw', lambda folder, made: None)


def make(rule, source, output, seed=0, **changes):
  settings = {n: flag.default for n, flag in rules.get(rule).flags.items()}
  settings |= SMALL.get(rule, {}) | changes
  make_splits.make(
    rules.Request(rule, settings, seed), str(source), COLUMNS, str(output)
  )
  return json.loads((output / 'summary.json').read_text())


def write(rule, folder, **options):
  if rule.startswith('landmarks'):
    return landmarks.write(folder, landmarks.images(), **options)
  return inaturalist.write(folder, inaturalist.content(), **options)


def lines(path):
  with open(path, newline='') as file:
    return list(csv.DictReader(file))


@pytest.mark.parametrize('rule', SMALL)
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
  split = split_folder.read(tmp_path / 'out')
  assert split.class_names == [c['name'] for c in classes]
  assert len(split.train) == summary['examples'] == len(train)
  if rule.startswith('landmarks'):
    right = {image: name for image, name, _ in landmarks.images()}
  else:
    data = inaturalist.content()
    name_of = {}
    for item in data['train2017.json']['categories']:
      name_of[item['id']] = item['name']
    right = {}
    for part in ('train', 'val'):
      for item in data[f'{part}2017.json']['annotations']:
        stem = f'{part}{item["image_id"]:08x}'
        right[stem] = name_of[item['category_id']]
  for row in train + tests:
    name = classes[int(row['class'])]['name']
    assert re.sub(r'( \d+) \d+$', r'\1', name) == right[row['image_id']]


@pytest.mark.parametrize('rule', SMALL)
def test_the_same_files_and_seed_make_the_same_split(rule, tmp_path):
  made = []
  for name, seed in (('a', 0), ('b', 0), ('c', 1)):
    source = write(rule, tmp_path / f'in_{name}')
    make(rule, source, tmp_path / name, seed=seed)
    made.append(
      [
        (tmp_path / name / file).read_bytes()
        for file in ('federated_train.csv', 'test.csv', 'classes.csv')
      ]
    )
  assert made[0] == made[1] != made[2]


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


def test_what_differs_from_the_published_split_is_told(tmp_path, capsys):
  rule = 'landmarks-user-160k'
  source = write(rule, tmp_path / 'in')
  report = make(rule, source, tmp_path / 'a')['published']
  assert not report['is_the_input'] and not report['is_the_rule']
  assert report['input']['images in train.csv'] == {
    'published': 4_132_914,
    'found': 1_700,
  }
  said = capsys.readouterr().err
  assert 'images in train.csv 1,700, published 4,132,914' in said
  assert '--min_landmark_authors 4, published 10' in said


def test_a_split_of_the_published_input_is_compared(
  tmp_path, capsys, monkeypatch
):
  name = 'inaturalist-geo-100'
  source = write(name, tmp_path / 'in')
  rule = rules.get(name)
  facts = make(name, source, tmp_path / 'a')['facts']
  known = rule.published._replace(
    input={n: facts[n] for n in rule.published.input},
    counts={'classes': 5, 'test_examples': 9, 'clients': 3},
  )
  flags = {
    n: flag._replace(default=SMALL[name][n]) for n, flag in rule.flags.items()
  }
  changed = {'published': known, 'flags': flags}
  monkeypatch.setitem(
    rules.RULES, name, type(rule)(**{**vars(rule), **changed})
  )
  capsys.readouterr()
  summary = make(name, source, tmp_path / 'b')
  report = summary['published']
  assert report['is_the_input'] and report['is_the_rule']
  assert report['counts']['test_examples'] == {
    'published': 9,
    'found': summary['test_examples'],
  }
  said = capsys.readouterr().err
  assert 'warning: the input is the published one, by its counts' in said
  assert 'of a draw that was not published: clients' in said
  right = {n: summary[n] for n in known.counts}
  changed['published'] = known._replace(counts=right)
  monkeypatch.setitem(
    rules.RULES, name, type(rule)(**{**vars(rule), **changed})
  )
  make(name, source, tmp_path / 'c')
  assert 'counts of the split are as published' in capsys.readouterr().err


def test_pictures_have_a_map_where_places_are_known(tmp_path):
  for rule in ('inaturalist-geo-100', 'inaturalist-user-120k'):
    make(rule, write(rule, tmp_path / 'in'), tmp_path / rule)
    assert (tmp_path / rule / 'map.png').exists() == ('geo' in rule)
    assert (tmp_path / rule / 'clients.png').exists()


def test_the_command(tmp_path):
  source = write('landmarks', tmp_path / 'in', packed=True)
  done = subprocess.run(
    [
      sys.executable,
      *('-m', 'launch.make_splits', 'landmarks-user-160k'),
      *(f'--input={source}', f'--output={tmp_path / "out"}'),
      *('--min_landmark_images=12', '--min_landmark_authors=4'),
      *('--min_author_images=12', '--min_author_landmarks=4'),
    ],
    capture_output=True,
    text=True,
    check=True,
  )
  assert 'note: the input is not the published one' in done.stderr
  assert done.stdout.endswith(f'written to {tmp_path / "out"}\n')
  without = sum(not author for _, _, author in landmarks.images())
  told = rf'input: images in train_clean\.csv without author +{without}\n'
  assert re.search(told, done.stdout)


@pytest.mark.parametrize('rule', SMALL)
def test_an_input_that_is_none(rule, tmp_path):
  for path in (tmp_path, tmp_path / 'none'):
    with pytest.raises(errors.InputError, match=r'--input=.* has no '):
      make(rule, path, tmp_path / 'out')


def test_no_class_has_enough_images(tmp_path):
  source = write('inaturalist', tmp_path / 'in')
  with pytest.raises(errors.InputError, match='no class has 500 images'):
    make('inaturalist-geo-1k', source, tmp_path / 'out', images_per_class=500)
