"""`launch.make_splits` of SOP and ImageNet-21k, and training data from these."""

import csv
import json
import shutil

import numpy as np
import pytest

from datasets.images import clients
from datasets.images import decode
from datasets.splits import output as output_lib
from datasets.splits import own
from datasets.splits import rule as rule_lib
from datasets.splits import rules
from launch import make_splits
from tests.datasets.imagenet21k import on_disk as imagenet21k
from tests.datasets.images import on_disk as images_on_disk
from tests.datasets.sop import on_disk as sop
from tff_xc import errors

COLUMNS = {'label': 'class', 'user': None, 'id': None}
SMALL = {
  'sop': {'examples_per_client': 5},
  'imagenet21k': {
    'test_share': 0.4,
    'examples_per_shard': 2,
    'shards_per_client': 2,
  },
}


@pytest.fixture(name='no_pictures', autouse=True)
def _no_pictures(monkeypatch):
  monkeypatch.setattr(output_lib, '_draw', lambda folder, made: None)


def make(rule, source, output, seed=0, **options):
  settings = {n: flag.default for n, flag in rules.get(rule).flags.items()}
  asked = rules.Request(rule, {**settings, **SMALL[rule]}, seed, **options)
  make_splits.make(asked, str(source), COLUMNS, str(output))
  return json.loads((output / 'summary.json').read_text())


def lines(path):
  with open(path, newline='') as file:
    return list(csv.DictReader(file))


def write(rule, folder):
  if rule == 'sop':
    return sop.write(folder, *sop.lists())
  return imagenet21k.as_text(folder)


def test_the_test_list_of_sop_becomes_the_retrieval_part(tmp_path):
  train, test = sop.lists()
  summary = make('sop', sop.write(tmp_path, train, test), tmp_path / 'out')
  assert summary['clients'] == 8
  assert summary['retrieval_examples'] == len(test)
  assert summary['retrieval_classes'] == 3
  assert summary['examples_unused'] == summary['test_examples'] == 0
  found = lines(tmp_path / 'out' / 'retrieval.csv')
  assert [(r['image_id'], int(r['class'])) for r in found] == [
    (row[3], row[1] - 1) for row in test
  ]
  found = lines(tmp_path / 'out' / 'federated_train.csv')
  assert {r['image_id']: int(r['class']) for r in found} == {
    row[3]: row[1] - 1 for row in train
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
  dataset = clients.load(folder, own.Choice(str(tmp_path / 'out')), side=16)
  left = [row[1] - 1 for i, row in enumerate(test) if i != 2]
  assert dataset.retrieval.y.tolist() == left
  assert sum(dataset.train.partition.sizes) == len(train) - 1
  assert dataset.num_classes == 6


def test_a_retrieval_file_is_told_where_it_does_not_count(tmp_path):
  make('sop', sop.write(tmp_path, *sop.lists()), tmp_path / 'out')
  data = own.Labelled(np.zeros(3, np.int32), ['0'], range(3))
  with pytest.raises(errors.InputError, match=r'retrieval\.csv, which only'):
    own.parts(data, own.Choice(str(tmp_path / 'out')), 'a.npz', '')


@pytest.mark.parametrize('rule', SMALL)
def test_the_same_seed_gives_the_same_files(rule, tmp_path):
  source = write(rule, tmp_path)
  outputs = [tmp_path / str(i) for i in range(3)]
  for seed, output in zip((0, 0, 1), outputs, strict=True):
    make(rule, source, output, seed)
  files = [
    {f.name: f.read_bytes() for f in output.glob('*.csv')} for output in outputs
  ]
  assert files[0] == files[1]
  assert (files[0] != files[2]) == (rule == 'imagenet21k')


def test_folders_tars_and_a_list_have_one_split(tmp_path):
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


@pytest.mark.parametrize('rule', SMALL)
def test_differences_from_what_was_published_are_told(
  rule, tmp_path, monkeypatch, capsys
):
  source = write(rule, tmp_path)
  summary = make(rule, source, tmp_path / '0')
  assert not summary['published']['is_the_input']
  assert 'note: the input is not the published one' in capsys.readouterr().err
  # As if this tiny input had been published.
  real = rules.get(rule)
  flags = {
    n: flag._replace(default=SMALL[rule].get(n, flag.default))
    for n, flag in real.flags.items()
  }
  counts = {n: summary[n] for n in real.published.counts}
  for clients_published, said in (
    (counts['clients'], 'note: the input and the counts of the split are as'),
    (counts['clients'] + 2, 'published one, by its counts, and the split is'),
  ):
    published = rule_lib.Published(
      summary['facts'], {**counts, 'clients': clients_published}, why='so it is'
    )
    like = rule_lib.Rule(
      '', real.split, flags, read=real.read, published=published
    )
    monkeypatch.setitem(rules.RULES, rule, like)
    made = make(rule, source, tmp_path / str(clients_published))
    assert said in (told := capsys.readouterr().err)
    differs = clients_published != counts['clients']
    assert ('(so it is)' in told) == differs
    assert set(made['published']['counts']) == (
      {'clients'} if differs else set()
    )
