"""Histories of items: reading them, their examples, and rankings without seen items."""

import collections
import types
import unicodedata

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from datasets import items
from datasets.procedural import purchases
from tff_xc import errors, memory

ROWS = """user,item,time
ann,tea,3
bob,tea,1
ann,jam,1
ann,tea,9
bob,rice,2
cy,oil,5
ann,rice,2
bob,jam,7
"""
ANY = items.Columns()


def table(folder, text=ROWS, name='mine.csv'):
  path = folder / name
  path.write_text(text)
  return path


def expected(histories, history, is_test, leave_out_seen=True):
  """Returns (user, features, label, seen items, is test) of each example, computed by loops."""
  found = []
  for user, taken in histories.items():
    if leave_out_seen:
      taken = list(dict.fromkeys(taken))
    for place in range(1, len(taken)):
      before = taken[:place]
      tested = is_test(user, place, taken)
      found.append((user, weighed(before[-history:]), taken[place], sorted(before), tested))
  return found


def weighed(before):
  bag = collections.Counter()
  for age, item in enumerate(reversed(before), 1):
    bag[item] += 1 / age
  return {item: pytest.approx(weight) for item, weight in bag.items()}


def examples(dataset):
  """Returns the tuples of `expected` for the examples of a data set, with names as text."""
  names = np.array(dataset.class_names)
  pool, found = dataset.train.pool, []
  for part, tested in ((dataset.train.partition, False), (dataset.held_out, True)):
    owners = part.owners()
    for owner, number in zip(owners, part.numbers, strict=True):
      x = pool.read(np.array([number]))
      bag = dict(zip(names[x.indices], x.data, strict=True))
      own = pool.seen.some(np.array([number])).matrix() if pool.seen else None
      seen = names[own.indices] if tested else None
      found.append((part.client_ids[owner], bag, names[pool.labels[number]], seen, tested))
  return found


@pytest.mark.parametrize('history', [1, 20])
def test_an_example_has_the_items_before_it_in_the_order_of_times(history, tmp_path):
  dataset = items.load(table(tmp_path), items.Options(history), ANY)
  histories = {'ann': ['jam', 'rice', 'tea', 'tea'], 'bob': ['tea', 'rice', 'jam']}

  def last(user, place, taken):
    return place == len(taken) - 1

  wanted = expected(histories, history, last)

  def key(e):
    return (e[4], e[0], e[2])

  for found, of in zip(sorted(examples(dataset), key=key), sorted(wanted, key=key), strict=True):
    assert found[:3] == of[:3]
    if of[4]:
      assert list(found[3]) == of[3]
  assert dataset.train.client_ids == ['ann', 'bob']  # Cy has only one item.
  assert [dataset.class_names[y] for y in dataset.test.labels] == ['tea', 'jam']
  assert dataset.test.seen.lengths.tolist() == [2, 2]


def test_items_may_come_twice_where_seen_ones_are_not_left_out(tmp_path):
  options = items.Options(leave_out_seen=False)
  dataset = items.load(table(tmp_path), options, ANY)
  assert dataset.test.seen is None
  every = dataset.train.pool.read(np.arange(len(dataset.train.pool)))
  assert dataset.train.pool.entries.tolist() == np.diff(every.indptr).tolist()
  [_, again] = dataset.train.pool.examples(dataset.held_out.numbers[:1])
  assert dataset.class_names[again[0]] == 'tea'
  bag = dataset.train.pool.read(dataset.held_out.numbers[:1])
  # Ann's items are jam, rice and tea, in the order of time.
  found = dict(zip(bag.indices, bag.data, strict=True))
  assert {dataset.class_names[i]: x for i, x in found.items()} == weighed(['jam', 'rice', 'tea'])


@pytest.mark.parametrize('leave_out_seen', [True, False])
@pytest.mark.parametrize('test', ['last', 'time'])
def test_validation_is_before_the_test_and_never_in_the_training(test, leave_out_seen):
  found = purchases.draw(purchases.Options(30, 40, 6))
  found = found._replace(times=found.times + 0.01 * found.users)
  options = items.Options(test=test, leave_out_seen=leave_out_seen)
  dataset = items.federated('mine', found, options)
  pool, users = dataset.train.pool, {}
  times = {}
  for user, item, time in zip(found.users, found.items, found.times, strict=True):
    users.setdefault(int(user), []).append(int(item))
    times[int(user), int(item)] = time
  every = {(u, i) for u, taken in users.items() for i in taken[1:]}

  def of(part):
    return {
      (int(part.client_ids[owner]), int(pool.labels[number]))
      for owner, number in zip(part.owners(), part.numbers, strict=True)
    }

  trained, bag = of(dataset.train.partition), dataset.validation.read
  held, tested = set(), set()
  if test == 'last':
    held = {(u, taken[-2]) for u, taken in users.items() if len(taken) > 3}
    tested = {(u, taken[-1]) for u, taken in users.items()}
  else:
    moment = np.quantile(found.times, 0.9, method='lower')
    before = found.times[found.times <= moment]
    earlier = np.quantile(before, 0.9, method='lower')
    tested = {pair for pair in every if times[pair] > moment}
    held = {pair for pair in every if earlier < times[pair] <= moment}
  assert trained == every - held - tested and len(held) > 5
  assert sorted(dataset.validation.labels) == sorted(item for _, item in held)
  assert len(dataset.test) == len(tested)
  # Validation and test items are never features in training.
  x = pool.read(dataset.train.partition.numbers)
  owners = dataset.train.partition.owners()
  ids = [int(name) for name in dataset.train.client_ids]
  rows, columns = x.nonzero()
  features = {(ids[owners[r]], int(c)) for r, c in zip(rows, columns, strict=True)}
  assert not features & (held | tested)
  if leave_out_seen:
    seen = dataset.validation.seen.matrix().toarray()
    assert all(seen[i][row.indices].all() for i, row in enumerate(bag(np.arange(len(seen)))))


def test_times_are_numbers_or_dates_and_rows_may_have_none(tmp_path):
  dated = ROWS.replace('time\n', 'date\n')
  for number in '97531':
    dated = dated.replace(f',{number}\n', f',2024-05-0{number}T10:00\n')
  dated = dated.replace(',2\n', ',2024-05-02\n')
  one, two = (items.read(table(tmp_path, text), ANY) for text in (ROWS, dated))
  assert one.items.tolist() == two.items.tolist()
  frame = pd.read_csv(tmp_path / 'mine.csv')
  frame['date'] = pd.to_datetime(frame['date'], format='ISO8601')
  frame.to_parquet(tmp_path / 'mine.parquet')
  three = items.read(tmp_path / 'mine.parquet', ANY)
  assert three.items.tolist() == one.items.tolist()
  bare = '\n'.join(line.rpartition(',')[0] for line in ROWS.splitlines())
  four = items.read(table(tmp_path, bare), ANY)
  names = [four.item_names[i] for i in four.items[four.users == 0]]
  assert names == ['tea', 'jam', 'tea', 'rice']


@pytest.mark.parametrize(
  ('kind', 'times'),
  [
    (pa.int64(), [2**60 + 2, 2**60 + 1, 2**60]),
    (pa.timestamp('ns'), [10**18 + 2, 10**18 + 1, 10**18]),
    (pa.timestamp('s'), [1_717_171_717_000, 5, -(10**12)]),
    (pa.date32(), [3_000_000, 0, -3_000_000]),
  ],
)
def test_times_of_any_size_have_their_order(kind, times, tmp_path):
  path = tmp_path / 'a.parquet'
  columns = {'user': ['u'] * 3, 'item': list('cba')}
  pq.write_table(pa.table({**columns, 'time': pa.array(times, kind)}), path)
  found = items.read(path, ANY)
  assert ''.join(found.item_names[i] for i in found.items) == 'abc'
  missing = pa.array([*times[:2], None], kind)
  pq.write_table(pa.table({**columns, 'time': missing}), path)
  with pytest.raises(errors.InputError, match="row 3: 'time' is"):
    items.read(path, ANY)


def test_a_time_with_too_many_digits_is_refused(tmp_path):
  rows = [f'{{"user": "u", "item": "a", "time": {time}}}' for time in (1, 10**400)]
  (tmp_path / 'a.jsonl').write_text('\n'.join(rows))
  with pytest.raises(errors.InputError, match="line 2: 'time' is"):
    items.read(tmp_path / 'a.jsonl', ANY)


@pytest.mark.parametrize(
  ('text', 'told'),
  [
    ('user,item\nann,tea\nbob,tea\n', 'at least 2'),
    ('user,item\nann,tea\nbob,jam\n', 'no training example'),
    ('user,item\nann,tea\nann,jam\n', '--leave_out_seen=false'),
    ('user,item,time\nann,tea,soon\n', "line 2: 'time' is 'soon'"),
    ('user,item,time\nann,tea,1\nann,jam,2024-05-01\n', "'2024-05-01'; expected numbers"),
    ('user,item,time\nann,tea,nan\n', "'nan'"),
    ('user,item\n,tea\n', "line 2 has no user, its 'user'"),
    ('user,item,time\nann,tea,\n', "line 2: 'time' is ''"),
    ('user,item,time\nann,tea,2024-02-30\n', "is '2024-02-30'"),
    ('who,item\nann,tea\n', '--user_column'),
    ('user,item,time\n', 'has no rows'),
    ('user;item\nann;tea\n', 'commas between'),
    ('1::1193::5\n1::661::3\n', 'commas between'),
  ],
)
def test_bad_tables_are_refused_in_a_sentence(text, told, tmp_path):
  path = table(tmp_path, text)
  with pytest.raises(errors.InputError, match=told) as refused:
    items.load(path, items.Options(), ANY)
  assert str(path) in str(refused.value)


def test_items_in_another_normal_form_are_items_of_a_model(tmp_path):
  path = table(tmp_path, 'user,item\nann,cafe\u0301\nann,tea\nann,caf\u00e9\n')
  how = types.SimpleNamespace(preprocessing={'leave_out_seen': False}, num_classes=2)
  for form in ('NFC', 'NFD'):
    names = ['tea', unicodedata.normalize(form, 'caf\u00e9')]
    assert items.of_model(path, how, names).items.tolist() == [1, 0, 1]


def histories(rows):
  """Returns histories of a bot with `rows` different items, and of a user with three items."""
  taken = np.concatenate([np.arange(rows), np.arange(3)]).astype(np.int32)
  users = (np.arange(len(taken)) >= rows).astype(np.int32)
  return items.Histories(
    users, taken, np.arange(len(taken)), ['bot', 'ann'], [*map(str, range(rows))]
  )


def test_a_history_that_fills_the_memory_is_refused(monkeypatch):
  monkeypatch.setattr(memory, 'free_bytes', lambda: 10**7)
  items.federated('mine', histories(3000), items.Options(20))
  with pytest.raises(errors.InputError, match='--history'):
    items.federated('mine', histories(3000), items.Options(10_000))


@pytest.mark.parametrize('history', [3, 50])
def test_of_sequences_every_training_item_is_a_target_once(history):
  found = purchases.draw(purchases.Options(20, 60, 9))
  options = items.Options(history, sequences=True)
  dataset = items.federated('mine', found, options)
  pool, train = dataset.train.pool, dataset.train.partition
  targets = collections.Counter()
  for owner, number in zip(train.owners(), train.numbers, strict=True):
    x = pool.read(np.array([number]))
    order = x.indices[np.argsort(x.data)]  # From the oldest to the newest item.
    for item in (*order[1:], pool.labels[number]):
      targets[int(train.client_ids[owner]), int(item)] += 1
  wanted = {}
  for user in range(20):
    own = found.items[found.users == user].tolist()
    for item in own[1 : -2 if len(own) > 3 else -1]:
      wanted[user, item] = 1
  assert targets == wanted
  # Warnings, class priors and the skew of clients include these labels.
  owners, labels = dataset.train.owned_labels()
  users = [int(train.client_ids[owner]) for owner in owners]
  assert collections.Counter(zip(users, labels, strict=True)) == wanted
  if history == 50:
    assert len(train.numbers) == len(train)  # Each user has one example.
