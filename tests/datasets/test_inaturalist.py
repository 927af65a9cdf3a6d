"""iNaturalist 2017: the files, and S2 cells against the library s2cell."""

import json

import numpy as np
import pytest
import s2cell

from datasets import inaturalist
from datasets import json_text
from datasets.splits import rules
from tests.datasets import inaturalist_on_disk as on_disk
from tff_xc import errors


def by_loops(found, part):
  """Returns {stem: (category id, user, latitude, longitude)} of plain JSON."""
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


@pytest.mark.parametrize(('zipped', 'chunk'), [(True, 1 << 20), (False, 64)])
def test_images_have_their_class_user_and_place(
  zipped, chunk, tmp_path, monkeypatch
):
  monkeypatch.setattr(json_text, '_CHUNK', chunk)
  found = on_disk.content()
  folder = on_disk.write(tmp_path, found, zipped)
  listing, located = (
    inaturalist.read(folder),
    inaturalist.read(folder, positions=True),
  )
  ids = listing.ids_of(np.arange(600))
  expected = by_loops(found, 'train')
  assert ids == list(expected)
  categories = sorted(c['id'] for c in found['train2017.json']['categories'])
  for i, (category, user, latitude, longitude) in enumerate(expected.values()):
    assert categories[listing.labels[i]] == category
    name = [*listing.user_names, None][listing.users[i]]
    assert name == (user if user is None else str(user))
    both = located.positions[i].tolist()
    if latitude is None:
      assert np.isnan(both).all()
    else:
      assert both == [latitude, longitude]
  assert listing.positions is None and located.users is None
  tests = by_loops(found, 'val')
  assert listing.ids_of(listing.test) == list(tests)
  labels = listing.labels[listing.test]
  assert [categories[c] for c in labels] == [t[0] for t in tests.values()]
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


def test_what_a_table_makes_of_unknown_values_is_unknown(tmp_path):
  found = on_disk.content()
  rows = {item['id']: item for item in found['train2017_locations.json']}
  rows[0].update(lat=float('nan'), lon=float('nan'), user_id=float('nan'))
  rows[1].update(user_id=12.0)
  rows[2].update(user_id='NA', lat=91)
  rows[3].update(user_id='12')
  listing = inaturalist.read(on_disk.write(tmp_path, found, zipped=False))
  located = inaturalist.read(tmp_path, positions=True)
  ids = listing.ids_of(np.arange(600))
  row = [ids.index(f'train{i:08x}') for i in range(4)]
  name = [[*listing.user_names, None][listing.users[i]] for i in row]
  assert name == [None, '12', None, '12']
  assert np.isnan(located.positions[row, 0]).tolist() == [
    True,
    False,
    True,
    False,
  ]


def images(found):
  return found['train2017.json']['images']


def annotations(found):
  return found['train2017.json']['annotations']


def locations(found):
  return found['train2017_locations.json']


@pytest.mark.parametrize(
  ('change', 'match'),
  [
    (lambda f: images(f)[2].pop('file_name'), r'images\[2\] .*"file_name" as'),
    (lambda f: images(f)[2].update(file_name=' '), '"file_name" as text'),
    (lambda f: images(f)[2].update(id='7'), '"id" as a whole'),
    (lambda f: images(f)[2].update(id=2**63), '"id" as a whole'),
    (lambda f: images(f)[2].update(id=images(f)[0]['id']), 'have the id'),
    (
      lambda f: images(f)[2].update(file_name=images(f)[0]['file_name']),
      'files of the name',
    ),
    (lambda f: images(f).append(4), r'images\[600\] .* an object'),
    (lambda f: images(f).clear(), 'has no images'),
    (lambda f: annotations(f).pop(), 'has 0 annotations'),
    (lambda f: annotations(f).append(annotations(f)[0]), 'has 2 annotations'),
    (lambda f: annotations(f)[0].update(image_id=999), 'image_id 999, which'),
    (lambda f: annotations(f)[0].update(category_id=4), 'category_id 4, which'),
    (lambda f: f['train2017.json'].pop('categories'), 'has no "categories"'),
    (lambda f: f['train2017.json']['categories'][0].update(name=3), '"name"'),
    (
      lambda f: f['val2017.json'].update(
        categories=[{'id': 3, 'name': 'a'}, {'id': 4, 'name': 'b'}],
        annotations=[
          {**a, 'category_id': 4} for a in f['val2017.json']['annotations']
        ],
      ),
      'the category 4, which',
    ),
    (lambda f: locations(f)[3].update(lat='5'), r'array\[3\] is .*"lat"'),
    (lambda f: locations(f)[3].update(user_id=[1]), '"user_id"'),
    (lambda f: locations(f).append(locations(f)[0]), 'each "id" once'),
    (lambda f: locations(f).clear(), 'has none of the 600 images'),
    (lambda f: f.update({'train2017_locations.json': {'a': 1}}), 'the array'),
  ],
)
def test_damaged_content(tmp_path, change, match):
  found = json.loads(json.dumps(on_disk.content()))
  change(found)
  with pytest.raises(errors.InputError, match=match) as e:
    inaturalist.read(on_disk.write(tmp_path, found))
  assert '\n' not in str(e.value)


def test_files_that_are_missing_or_cut_short(tmp_path):
  with pytest.raises(
    errors.InputError, match=r'no train2017\.json, nor train_val'
  ):
    inaturalist.read(tmp_path)
  on_disk.write(tmp_path, on_disk.content(), zipped=False)
  path = tmp_path / 'train2017.json'
  text = path.read_text()
  path.write_text(text[: len(text) // 2])
  with pytest.raises(errors.InputError, match='ends within'):
    inaturalist.read(tmp_path)
  path.unlink()
  archive = tmp_path / 'train_val2017.zip'
  archive.write_bytes(b'PK no zip')
  with pytest.raises(errors.InputError, match='no zip that can be read'):
    inaturalist.read(tmp_path)


def test_a_damaged_member_of_a_zip(tmp_path):
  on_disk.write(tmp_path, on_disk.content())
  path = tmp_path / 'train_val2017.zip'
  data = bytearray(path.read_bytes())
  data[3000:3200] = bytes(200)
  path.write_bytes(data)
  with pytest.raises(errors.InputError, match=r'zip.train2017\.json'):
    inaturalist.read(tmp_path)


def positions(seed, count=800):
  return np.array(on_disk.places(np.random.default_rng(seed), count))


def cells_by_loops(points, most):
  """Divides cells one by one: {token: numbers}."""

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
  return {
    name: partition.of_client(k).tolist()
    for k, name in enumerate(partition.client_ids)
  }


@pytest.mark.parametrize('level', range(0, 31, 3))
def test_a_cell_is_that_of_another_library(level):
  points = positions(3)
  expected = [s2cell.lat_lon_to_cell_id(*p, level) for p in points.tolist()]
  found = inaturalist.parents(inaturalist.leaves(points), level).tolist()
  assert found == expected
  assert list(map(inaturalist.token, found)) == list(
    map(s2cell.cell_id_to_token, expected)
  )


@pytest.mark.parametrize('seed', range(3))
@pytest.mark.parametrize('most', [1, 10, 95, 1000])
def test_clients_are_those_of_loops(seed, most):
  points = positions(seed)
  found = clients(inaturalist.of_cells(points, range(len(points)), most, 0))
  assert found == cells_by_loops(points, most)
  # Every point has one client, and no client has too many, but at one place.
  held = [i for numbers in found.values() for i in numbers]
  assert sorted(held) == list(range(len(points)))
  for numbers in found.values():
    assert len(numbers) <= most or len(np.unique(points[numbers], axis=0)) == 1


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


def test_degenerate_cells():
  points = np.repeat([[10.5, 10.5], [10.5, -10.5]], [5, 4], axis=0)
  assert inaturalist.of_cells(points, range(9), 5, 5).sizes.tolist() == [5]
  # Points at one place are not divided.
  found = inaturalist.of_cells(np.full((9, 2), 10.5), range(9), 2, 0)
  assert found.sizes.tolist() == [9]
  assert found.client_ids == [s2cell.lat_lon_to_token(10.5, 10.5, 30)]
  for points in (np.full((9, 2), np.nan), positions(0, 20)):
    with pytest.raises(errors.InputError, match='no S2 cell has 100 of'):
      inaturalist.of_cells(points, range(len(points)), 10_000, 100)
