"""`launch.make_splits`: every rule on every input, all of a split or nothing."""

import dataclasses

import numpy as np
import pytest
import scipy.sparse

from datasets import examples
from datasets.cifar import files as cifar_files
from datasets.splits import making
from datasets.splits import rules
from datasets.splits import split_files
from launch import make_splits
from tests.datasets import sop_on_disk
from tests.datasets.cifar import on_disk as cifar_on_disk
from tests.launch import light
from tests.launch import split_inputs
from tff_xc import errors

COLUMNS = split_inputs.COLUMNS
FILES = {
  'federated_train.csv',
  'classes.csv',
  'summary.json',
  'clients.png',
  'class_counts.png',
  'labels.png',
}
# Such that tiny inputs suffice.
SMALL = {
  'dirichlet': {'clients': 4},
  'iid': {'clients': 4},
  'classes_per_client': {'classes_per_client': 2, 'clients_per_class': 2},
  'chunks': {'examples_per_client': 7},
  'shards': {'clients': 4},
  'frequent_labels': {'clients': 3},
}


@pytest.fixture(name='no_pictures', autouse=True)
def _no_pictures(request, monkeypatch):
  """Draws none, which take most of the time, unless a test is of pictures."""
  if 'pictures' not in request.node.name:
    monkeypatch.setattr(making, '_draw', lambda folder, made: None)


def make(rule, source, output, columns=COLUMNS, **options):
  options = {**SMALL.get(rule, {}), **options}
  return split_inputs.make(rule, source, output, columns, **options)


@pytest.mark.parametrize('write', split_inputs.INPUTS)
def test_every_rule_on_every_input(write, tmp_path, monkeypatch):
  monkeypatch.setattr(cifar_files, 'OFFICIAL', cifar_on_disk.COUNTS['cifar10'])
  source = write(tmp_path)
  for name, rule in rules.RULES.items():
    if rule.read:  # It takes one input only: test_make_published.py.
      continue
    output = tmp_path / 'out' / name
    fits = (write not in split_inputs.WITHOUT_USERS or not rule.users) and (
      write is split_inputs.as_xc or rule.labels != 'sets'
    )
    if not fits:
      with pytest.raises(errors.InputError, match='rule'):
        make(name, source, output)
      assert not output.exists()
      continue
    text = make(name, source, output)
    assert text.endswith(f'written to {output}\n')
    summary = split_inputs.summary(output)
    train = split_inputs.lines(output / 'federated_train.csv')
    assert summary['examples'] == len(train) > 0
    assert summary['clients'] == len({row['user_id'] for row in train})
    assert 0 <= summary['emd'] <= 2
    classes = split_inputs.lines(output / 'classes.csv')
    assert len(classes) == summary['classes']
    counted = sum(int(row['count']) for row in classes)
    assert counted == sum(len(row['class'].split()) for row in train)
    tests = output / 'test.csv'
    assert tests.exists() == (write is split_inputs.as_cifar or rule.makes_test)
    images = [row['image_id'] for row in train]
    if rule.labels != 'sets':
      assert len(set(images)) == len(images)
    if tests.exists() and write is not split_inputs.as_cifar:
      held_out = {row['image_id'] for row in split_inputs.lines(tests)}
      assert not held_out & set(images)
      assert len(held_out) == summary['test_examples'] == 5


def test_a_split_is_the_same_whatever_form_the_table_has(tmp_path):
  made = []
  for write in (
    split_inputs.as_csv,
    split_inputs.as_parquet,
    split_inputs.as_json_lines,
  ):
    output = tmp_path / write.__name__
    make('dirichlet', write(tmp_path), output, test_fraction=0.25)
    made.append({p.name: p.read_bytes() for p in output.iterdir()})
    made[-1].pop('summary.json')  # It has the name of the input.
  assert made[0] == made[1] == made[2]
  assert set(made[0]) == {'federated_train.csv', 'test.csv', 'classes.csv'}


def test_a_split_of_images_is_read_back(tmp_path):
  output = tmp_path / 'out'
  make('dirichlet', split_inputs.as_images(tmp_path), output, test_per_class=2)
  ids = sorted(f'c{i % 6}/{i}.jpg' for i in range(48))
  labels = np.array([int(name[1]) for name in ids])
  data = dataclasses.replace(
    examples.of_labels(labels), ids=examples.texts([ids])
  )
  split = split_files.read(output)
  test = split_files.join(data, split, split.examples.test, '')
  train = split_files.partition(output, data, '')
  assert np.bincount(labels[test]).tolist() == [2] * 6
  both = np.sort(np.concatenate([train.numbers, test]))
  np.testing.assert_array_equal(both, np.arange(48))
  assert train.client_ids == list('0123')
  assert split_inputs.lines(output / 'classes.csv')[1] == {
    'class': '1',
    'name': 'c1',
    'count': '6',
  }


def test_a_split_of_cifar_is_the_tasks_partition(tmp_path, monkeypatch):
  counts = cifar_on_disk.COUNTS['cifar10']
  monkeypatch.setattr(cifar_files, 'OFFICIAL', counts)
  source = split_inputs.as_cifar(tmp_path)
  with pytest.raises(errors.InputError, match='has a test part; leave out'):
    make('chunks', source, tmp_path / 'out', test_fraction=0.1)
  make('dirichlet', source, tmp_path / 'out', seed=3)
  found = cifar_on_disk.load(tmp_path, split=tmp_path / 'out').train
  data = examples.of_labels(found.pool.y)
  expected = rules.deal('dirichlet', data, 3, **SMALL['dirichlet']).train
  found = found.partition
  assert found.client_ids == expected.client_ids
  np.testing.assert_array_equal(found.numbers, expected.numbers)
  np.testing.assert_array_equal(found.offsets, expected.offsets)


def contents(folder):
  return {
    p.name: (p.read_bytes(), p.stat().st_mtime_ns) for p in folder.iterdir()
  }


def test_nothing_is_overwritten_and_the_same_split_is_left_with_its_pictures(
  tmp_path,
):
  source, output = split_inputs.as_csv(tmp_path), tmp_path / 'out'
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
  (output / 'classes.csv').write_text('class,name,count\n')
  refused(r'with another classes\.csv')
  (output / 'classes.csv').unlink()
  refused(r'without its classes\.csv')
  (tmp_path / 'empty').mkdir()
  make('shards', source, tmp_path / 'empty')


def test_after_an_error_nothing_is_left(tmp_path, monkeypatch):
  source, output = split_inputs.as_csv(tmp_path), tmp_path / 'new' / 'out'

  def fail(folder, made):
    raise OSError(28, 'No space left on device')

  monkeypatch.setattr(making, '_draw', fail)
  with pytest.raises(errors.InputError, match=r'cannot be written \(No space'):
    make('chunks', source, output)
  assert list(output.parent.iterdir()) == []


def test_inspecting_a_split_of_somebody_else(tmp_path, capsys):
  source = tmp_path / 'iNaturalist_train.csv'
  source.write_text(
    'image_id,class,user_120k,geo_100\n'
    'a,5,u1,NA\nb,5,u2,7\nc,9,u2,7\nd,7,NA,3\n'
  )
  text = make_splits.make(
    None, str(source), {**COLUMNS, 'user': 'user_120k'}, str(tmp_path / 'out')
  )
  assert 'clients                        2\n' in text
  summary = split_inputs.summary(tmp_path / 'out')
  assert (summary['clients'], summary['examples']) == (2, 3)
  assert (summary['classes'], summary['classes_held']) == (3, 2)
  assert summary['examples_unused'] == 1
  # p is 2/3, 1/3; the clients are 1/3 and 1/6 away on each of the two.
  assert summary['emd'] == pytest.approx((1 * 2 / 3 + 2 * 1 / 3) / 3)
  files = {p.name for p in (tmp_path / 'out').iterdir()}
  assert files == {'classes.csv', 'summary.json'}
  geo = make_splits.make(None, f'{source}:geo_100', COLUMNS, None)
  assert 'clients                        2\n' in geo
  assert 'is another file: its md5 is' in capsys.readouterr().err
  with pytest.raises(errors.InputError, match=r'such as .*csv:user_120k'):
    make_splits.make(None, str(source), COLUMNS, None)
  with pytest.raises(errors.InputError, match='holds something else'):
    make_splits.make(None, str(source), COLUMNS, str(tmp_path))


@pytest.mark.parametrize('rule', ['dirichlet', 'frequent_labels'])
def test_inspecting_our_own_split_gives_its_own_numbers(rule, tmp_path):
  made = tmp_path / 'out'
  make(rule, split_inputs.as_xc(tmp_path), made)
  make_splits.make(
    None, str(made / 'federated_train.csv'), COLUMNS, str(tmp_path / 'again')
  )
  first, again = map(split_inputs.summary, (made, tmp_path / 'again'))
  for key in ('clients', 'examples', 'classes_held', 'classes_per_client'):
    assert first[key] == again[key]
  assert first['emd'] == pytest.approx(again['emd'])


def test_inspecting_examples_without_labels(tmp_path):
  source = tmp_path / 'split.csv'
  source.write_text('user_id,image_id,class\na,1,0 3\nb,2,\n')
  text = make_splits.make(None, str(source), COLUMNS, None)
  assert 'examples of clients            2' in text
  for classes, message in (
    ('0,', 'example 2 has no class'),
    ('1 4000000000,0', 'at most 16,777,216 classes'),
    (f'1 {10**30},', 'example 2 has no class'),
  ):
    a, b = classes.split(',')
    source.write_text(f'user_id,image_id,class\na,1,{a}\nb,2,{b}\n')
    with pytest.raises(errors.InputError, match=message):
      make_splits.make(None, str(source), COLUMNS, None)
  with pytest.raises(errors.InputError, match=r'.* is no file; give'):
    make_splits.make(None, str(tmp_path), COLUMNS, None)


def test_pictures_are_the_same_each_time_and_text_fits(tmp_path, monkeypatch):
  monkeypatch.setenv('COLUMNS', '70')
  drawn = []
  for name in 'ab':
    text = make('users', split_inputs.as_npz(tmp_path), tmp_path / name)
    lines = [n for n in text.splitlines() if str(tmp_path) not in n]
    assert max(map(len, lines)) <= 70  # A path is not broken.
    pngs = sorted((tmp_path / name).glob('*.png'))
    assert [p.name for p in pngs] == sorted(f for f in FILES if 'png' in f)
    drawn.append([p.read_bytes() for p in pngs])
  assert drawn[0] == drawn[1]


@pytest.mark.parametrize(
  ('arguments', 'message'),
  [
    ('', 'name one rule, dirichlet, iid'),
    ('dirichlets', "unknown rule 'dirichlets'"),
    ('chunks shards', 'name one rule'),
    ('chunks', '--input is missing'),
    ('chunks --input=a', '--output is missing'),
    ('chunks --clients=1', '--clients is no flag of chunks'),
    ('dirichlet --alpha=1', '--alpha is --concentration now'),
    ('dirichlet --concentration=-1', 'at least 0.0'),
    ('dirichlet --concentration=nan', 'a finite number'),
    ('dirichlet --clients=1.5', "--clients='1.5': expected a whole number"),
    ('shards --clients=0', '--clients=0: expected at least 1'),
    ('frequent_labels --variant=a', 'one of code, paper'),
    ('leaf_users --test_fraction=0.1', 'makes the test part itself'),
    ('chunks --test_fraction=0.1 --test_per_class=1', 'not both'),
    ('chunks --test_fraction=0.6', 'test_fraction'),
    ('chunks --inspect=a.csv', 'chunks does not go with --inspect'),
    ('--inspect=a.csv --seed=1', '--seed does not go with --inspect'),
  ],
)
def test_bad_flags_are_refused_in_one_sentence(arguments, message):
  done = light.call('make_splits', *arguments.split())
  light.assert_one_sentence(done, message)


def test_help_names_every_rule_and_its_flags():
  text = light.call('make_splits', '--help').stdout
  for name, rule in rules.RULES.items():
    assert f'  {name} ' in text
    assert rule.summary in text
    for flag in rule.flags:
      assert f'--{flag.name}:' in text


def test_emd_of_sets_counts_labels(tmp_path):
  request = split_inputs.request('frequent_labels', clients=2)
  made = making.make(
    request, split_inputs.as_xc(tmp_path), making.inputs.Columns()
  )
  parts = [made.examples.labels[made.train.of_client(k)] for k in range(2)]
  table = [np.asarray(part.sum(axis=0)).ravel() for part in parts]
  np.testing.assert_array_equal(made.counts.toarray(), table)
  assert scipy.sparse.issparse(made.counts)


def test_a_link_is_followed_and_the_folder_at_hand_is_refused(
  tmp_path, monkeypatch
):
  source = split_inputs.as_csv(tmp_path)
  (tmp_path / 'there').mkdir()
  (tmp_path / 'link').symlink_to('there')
  make('chunks', source, tmp_path / 'link')
  assert (tmp_path / 'link').is_symlink()
  assert {p.name for p in (tmp_path / 'there').iterdir()} >= {'classes.csv'}
  (tmp_path / 'here').mkdir()
  monkeypatch.chdir(tmp_path / 'here')
  for output in ('.', tmp_path / 'here'):
    with pytest.raises(errors.InputError, match='folder that the command runs'):
      make('chunks', source, output)


def test_a_splits_pictures_do_not_join_its_images(tmp_path):
  source = split_inputs.as_images(tmp_path)
  for output in (source / 'new/split', tmp_path / 'a/../images/c0/s'):
    with pytest.raises(errors.InputError, match=r'lies in --input=.*images,'):
      make('chunks', source, output)
  assert not (source / 'new').exists()
  make('chunks', split_inputs.as_xc(tmp_path), tmp_path / 'images' / 'text')
  # Nor do those beside lists that name the images.
  source = sop_on_disk.write(tmp_path, *sop_on_disk.lists())
  make('sop', source, source / 'sop')
  assert (source / 'sop' / 'retrieval.csv').exists()
