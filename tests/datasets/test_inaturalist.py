"""iNaturalist 2017: its files, and S2 cells compared with the library s2cell."""

import json

import numpy as np
import pytest
import s2cell

from datasets import inaturalist
from datasets.splits import rules
from tests.datasets import inaturalist_on_disk as on_disk
from tff_xc import errors


def by_loops(found, part):
  """Returns {stem: (category id, user, latitude, longitude)} from the JSON."""
  data = found[f'{part}2017.json']
  category = {a['image_id']: a['category_id'] for a in data['annotations']}
  where = {item['id']: item for item in found[f'{part}2017_locations.json']}
  return {
    image['file_name'].split('/')[-1][:-4]: (
      category[image['id']],
      *(where[image['id']][key] for key in ('user_id', 'lat', 'lon')),
    )
    for image in data['images']
  }


@pytest.mark.parametrize('zipped', [True, False])
def test_images_have_their_class_user_and_place(zipped, tmp_path):
  found = on_disk.content()
  folder = on_disk.write(tmp_path, found, zipped)
  listing = inaturalist.read(folder)
  located = inaturalist.read(folder, positions=True)
  assert listing.positions is None and located.users is None
  expected, tests = by_loops(found, 'train'), by_loops(found, 'val')
  assert listing.ids_of(np.arange(600)) == list(expected)
  assert listing.ids_of(listing.test) == list(tests)
  categories = sorted(c['id'] for c in found['train2017.json']['categories'])
  of_images, users, *where = zip(*expected.values(), strict=True)
  of_images += tuple(test[0] for test in tests.values())
  assert [categories[c] for c in listing.labels] == list(of_images)
  names = [*listing.user_names, None]
  assert [names[user] for user in listing.users[:600]] == [
    user if user is None else str(user) for user in users
  ]
  where = np.array(where, float).T  # None becomes NaN.
  np.testing.assert_array_equal(located.positions[:600], where)
  assert listing.class_names[:3] == ['Genus 0 3', 'Genus 1', 'Genus 2']
  assert listing.class_names[11] == 'Genus 0 58'
  facts = dict(listing.facts)
  checksum = 'md5 of inat2017_locations.zip'
  assert (facts.pop(checksum, None) is not None) == zipped
  assert facts == {
    'images in train2017.json': 600,
    'images in val2017.json': 60,
    'categories in train2017.json': 12,
    'images without user': 12,
    'images without coordinates': 30,
  }
  if zipped:
    published = rules.get('inaturalist-geo-100').published.input
    assert set(published) <= set(listing.facts)


@pytest.mark.parametrize(
  ('key', 'change', 'match'),
  [
    ('images', lambda rows: rows[2].pop('file_name'), 'different ids and names'),
    ('images', lambda rows: rows[2].update(id=rows[0]['id']), 'different ids and names'),
    (
      'images',
      lambda rows: rows[2].update(file_name=rows[0]['file_name']),
      'different ids and names',
    ),
    ('images', lambda rows: rows.append(4), 'images'),
    ('annotations', lambda rows: rows.pop(), 'one annotation'),
    ('annotations', lambda rows: rows[0].update(image_id=999), 'one annotation'),
    ('annotations', lambda rows: rows[0].update(category_id=4), '"categories"'),
    ('', lambda f: f['train2017.json'].pop('categories'), '"categories"'),
    (
      '',
      lambda f: f['val2017.json'].update(
        categories=[{'id': 4, 'name': 'b'}],
        annotations=[{**a, 'category_id': 4} for a in f['val2017.json']['annotations']],
      ),
      'the category 4, which',
    ),
    ('locations', lambda rows: rows[3].update(lat='north'), '"lat"'),
    ('locations', lambda rows: rows.append(rows[0]), 'images once'),
    ('locations', lambda rows: rows.clear(), 'the 600 images once'),
  ],
)
def test_damaged_content(tmp_path, key, change, match):
  found = json.loads(json.dumps(on_disk.content()))
  parts = {'': found, 'locations': found['train2017_locations.json']}
  change({**found['train2017.json'], **parts}[key])
  with pytest.raises(errors.InputError, match=match) as e:
    inaturalist.read(on_disk.write(tmp_path, found))
  assert '\n' not in str(e.value)


def test_files_that_are_missing_or_damaged(tmp_path):
  with pytest.raises(errors.InputError, match=r'no train2017\.json, nor train_val'):
    inaturalist.read(tmp_path)
  on_disk.write(tmp_path, on_disk.content(), zipped=False)
  path = tmp_path / 'train2017.json'
  path.write_bytes(path.read_bytes()[:20_000])
  with pytest.raises(errors.InputError, match='cut short'):
    inaturalist.read(tmp_path)


def positions(seed, count=800):
  return np.array(on_disk.places(np.random.default_rng(seed), count))


def cells_by_loops(points, most):
  """Divides cells one by one. Returns the example numbers of each cell's token."""

  def inside(numbers, level):
    found = {}
    for i in numbers:
      token = s2cell.lat_lon_to_token(*points[i].tolist(), level)
      found.setdefault(token, []).append(i)
    return found

  waiting = [(0, n) for n in inside(range(len(points)), 0).items()]
  leaves = {}
  while waiting:
    level, (token, numbers) = waiting.pop()
    if len(numbers) <= most or level == 30:
      leaves[token] = numbers
    else:
      waiting += [(level + 1, n) for n in inside(numbers, level + 1).items()]
  return leaves


def clients(partition):
  return {name: partition.of_client(k).tolist() for k, name in enumerate(partition.client_ids)}


@pytest.mark.parametrize('level', range(0, 31, 3))
def test_a_cell_is_that_of_another_library(level):
  points = positions(3)
  expected = [s2cell.lat_lon_to_cell_id(*p, level) for p in points.tolist()]
  found = inaturalist.parents(inaturalist.leaves(points), level).tolist()
  assert found == expected
  assert list(map(inaturalist.token, found)) == list(map(s2cell.cell_id_to_token, expected))


@pytest.mark.parametrize('seed', range(3))
@pytest.mark.parametrize('most', [1, 10, 95, 1000])
def test_clients_are_those_of_loops(seed, most):
  points = positions(seed)
  found = clients(inaturalist.of_cells(points, range(len(points)), most, 0))
  assert found == cells_by_loops(points, most)


def test_small_cells_and_unknown_places_are_left_out():
  points = positions(0)
  points[::7] = np.nan
  some = np.arange(0, len(points), 2)
  found = clients(inaturalist.of_cells(points, some, 40, 5))
  known = [i for i in some.tolist() if i % 7]
  expected = {
    token: [known[i] for i in numbers]
    for token, numbers in cells_by_loops(points[known], 40).items()
    if len(numbers) >= 5
  }
  assert found == expected
  assert len(found) < len(cells_by_loops(points[known], 40))
