"""`launch.predict` on images, tables and sparse text, with scores and neighbours.

The checkpoint of a run is its initial state, so tests train nothing.
"""

import csv
import importlib.util
import shutil
import sys
import types

import numpy as np
import pandas as pd
import pytest

from datasets import raw_examples
from launch import export, prediction, trained
from tests.datasets import images_on_disk
from tests.launch import own_examples, test_evaluate
from tff_xc import errors
from tff_xc.data import description, sparse
from tff_xc.measure import neighbors

here = test_evaluate.here
SMALL = {'hidden_dim': 4, 'embedding_dim': 4}
SEQUENCE = {'encoder': 'sequence', 'embedding_dim': 4}


def rows_of(path):
  with open(path, newline='') as file:
    header, *rows = csv.reader(file)
  return header, rows


def photographs(here, **more):
  """Makes a run on photographs of cats, dogs and emus."""
  images_on_disk.classes(here / 'photos', {'cat': 9, 'dog': 10, 'emu': 8})
  path = test_evaluate.untrained(
    here / 'run',
    'images',
    'fedavg',
    **{'data_dir': 'photos', 'split': 'iid:2', 'embedding_dim': 4, **more},
  )
  (path / 'classes.csv').write_text('class,name,count\n0,cat,9\n1,dog,10\n2,emu,8\n')
  return str(path)


@pytest.mark.slow
def test_photographs_and_their_neighbours(here, capsys):
  run = photographs(here)
  images_on_disk.tarred(here / 'photos', here / 'photos.tar')
  shutil.make_archive('photos', 'zip', 'photos')
  found = trained.restore(run, {'data_dir': 'photos'})
  pool = found.dataset.train.pool
  predicted = found.evaluator.predict(found.weights, pool, np.arange(len(pool)))
  top1 = float(np.mean(predicted == pool.labels))
  tables = []
  for given in ('photos', 'photos.tar', 'photos.zip'):
    scores = prediction.run([given], run_dir=run, top=2, output='p.csv')
    assert scores == {'top1': pytest.approx(top1)}
    header, rows = rows_of('p.csv')
    tables.append([row[1:] for row in rows])
    assert header == ['input', 'class_1', 'score_1', 'class_2', 'score_2']
  assert tables[0] == tables[1] == tables[2]
  assert rows_of('p.csv')[1][0][0].startswith('photos.zip/cat/')
  names = np.array(['cat', 'dog', 'emu'])
  assert [row[0] for row in tables[0]] == names[predicted].tolist()
  # A copy is the nearest neighbor of its original. The gallery contains no picture twice.
  one = sorted((here / 'photos' / 'dog').iterdir())[0].relative_to(here)
  shutil.copy(one, here / 'copy.jpg')
  near = {'run_dir': run, 'neighbors': 26, 'gallery': 'photos', 'output': 'n.csv'}
  prediction.run(['copy.jpg'], picture='n.png', **near)
  row = rows_of('n.csv')[1][0]
  names, far = row[7::2], [float(cell) for cell in row[8::2]]
  assert far == sorted(far)
  assert (names[0], far[0]) == (str(one), pytest.approx(0, abs=1e-6))
  assert len({*names}) == 26
  assert (here / 'n.png').stat().st_size > 1000
  prediction.run([str(one)], **near)
  assert str(one) not in rows_of('n.csv')[1][0][7::2]
  scores = prediction.run(['photos/dog'], run_dir=run, neighbors=3, gallery='photos')
  assert {'retrieval_recall@1', 'retrieval_recall@3', 'top1'} <= {*scores}
  shown = capsys.readouterr().out.splitlines()
  shown = [line.split(': ') for line in shown if '; nearest' in line]
  assert len(shown) > 5
  for _, best, near in shown:
    assert 'cat ' in best and near.count('photos/') == 3


def test_a_table_has_the_scores_of_its_test(here):
  given = test_evaluate._table(here)
  run = test_evaluate.untrained(here / 'run', 'table', 'fedavg', **given)
  found = trained.restore(str(run), {'data_dir': 'items.csv'})
  expected = found.evaluator(found.weights)['top1']
  names = ''.join(f'{i},item {i},15\n' for i in range(4))
  (run / 'classes.csv').write_text(f'class,name,count\n{names}')
  frame = pd.read_csv('items.csv')
  test = frame[frame['part'] == 'test'].drop(columns=['user', 'part'])
  test.assign(**{'class': 'no label'}).to_csv('test.csv', index=False)
  test.to_json('test.jsonl', orient='records', lines=True)
  test.drop(columns='item').to_parquet('unlabelled.parquet')

  def run_on(*given, **more):
    return prediction.run(given, run_dir=str(run), output='p.csv', **more)

  for file, more in (('test.csv', {}), ('test.jsonl', {'label_column': 'item'})):
    scores = run_on(file, **more)  # The run knows the name of the column.
    assert scores['top1'] == pytest.approx(expected)
    labelled = rows_of('p.csv')[1]
  np.savez('rows.npz', x=test[['a', 'b', 'c']].to_numpy(float))
  for file in ('unlabelled.parquet', 'rows.npz'):
    assert run_on(file) == {}
    assert [row[1:] for row in rows_of('p.csv')[1]] == [r[1:] for r in labelled]
  for wrong, word in (
    ({'x': np.zeros([3, 1])}, 'features'),
    ({'x': np.full([3, 2], np.nan)}, 'finite'),
    ({'z': np.zeros(3)}, 'no array x'),
  ):
    np.savez('wrong.npz', **wrong)
    with pytest.raises(errors.InputError, match=word):
      run_on('wrong.npz')
  np.savez('labelled.npz', x=test[['a', 'b', 'c']].to_numpy(float), y=np.zeros(len(test), int))
  assert run_on('labelled.npz') == {}  # The model's classes have names.
  with pytest.raises(errors.InputError, match='labels in y'):
    run_on('labelled.npz', label_column='item')
  assert run_on('items.csv').keys() == scores.keys()
  run_on('test.csv', 'test.jsonl')
  names = [row[0] for row in rows_of('p.csv')[1]]
  assert (names[0], names[-1]) == ('test.csv:2', 'test.jsonl:10')
  before = (here / 'p.csv').read_bytes()
  test.rename(columns={'b': 'beta'}).to_csv('other.csv', index=False)
  (here / 'bad.csv').write_text('a,b,c\n1,2,3\n1,x,3\n')
  for given, more, word in (
    (['other.csv'], {}, "no column 'b'"),
    (['bad.csv'], {}, 'line 3'),
    (['test.csv'], {'label_column': 'kind'}, "'kind'"),
    (['none.csv'], {}, 'none.csv'),
    ([], {}, 'no input'),
    ([str(here)], {}, 'takes rows of numbers'),
    (['test.csv'], {'neighbors': 99, 'gallery': 'test.csv'}, '10 rows'),
  ):
    with pytest.raises(errors.InputError, match=word) as e:
      run_on(*given, **more)
    assert '\n' not in str(e.value)
  assert (here / 'p.csv').read_bytes() == before
  assert not [*here.glob('.*tmp*'), *here.glob('p.*.csv')]


_FORMS = ['saved_model', 'tflite']
_FORMS += ['onnx'] if importlib.util.find_spec('tf2onnx') else []


def _exports_predict_alike(run, file, top, forms=('saved_model', 'tflite')):
  """Compares predictions of all installed export formats with predictions of the run."""
  prediction.run([file], run_dir=run, top=top, output='run.csv')
  for form in forms:
    export.run(run, f'as_{form}', form, top=top)
    prediction.run([file], model=f'as_{form}', top=top, output='model.csv')
    for row, other in zip(rows_of('run.csv')[1], rows_of('model.csv')[1], strict=True):
      assert row[0] == other[0]
      scores = [[float(cell) for cell in r[2::2]] for r in (row, other)]
      assert scores[0] == pytest.approx(scores[1], abs=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize('algorithm', ['fedavg', 'fedmlh'])
def test_sparse_text_has_the_scores_of_its_test(here, algorithm):
  own_examples.text(here)
  hashed = {'hash_tables': 2, 'hash_buckets': 4, 'hashed_features': 7}
  given = {'data_dir': 'train.txt', 'test_file': 'test.txt'}
  changes = {
    **given,
    'hidden_dim': 4,
    'num_clients': 2,
    **(hashed if algorithm == 'fedmlh' else {}),
  }
  run = test_evaluate.untrained(here / 'run', 'sparse-text-sets', algorithm, **changes)
  found = trained.restore(str(run), given)
  expected = found.evaluator(found.weights)

  def run_on(file):
    return prediction.run([file], run_dir=str(run), top=3, output='p.csv')

  scores = run_on('test.txt')
  for name in ('p@1', 'p@3', 'p@5'):
    assert scores[name] == pytest.approx(expected[name], abs=1e-6)
  rows = rows_of('p.csv')[1]
  assert [row[0] for row in rows] == [str(i) for i in range(2, 14)]
  # In the first file, ids and row splits have equal lengths, so only their names distinguish them.
  (here / 'few.txt').write_text('0:0.5 3:1 \n5:3\n')
  for file in ('few.txt', 'test.txt'):
    _exports_predict_alike(str(run), file, 3, _FORMS)
  header, *lines = (here / 'test.txt').read_text().splitlines()
  unlabelled = [line.split(' ', 1)[1] for line in lines]
  (here / 'lines.txt').write_text('\n'.join(unlabelled))
  assert run_on('lines.txt') == {}
  assert [r[1:] for r in rows_of('p.csv')[1]] == [r[1:] for r in rows]
  for text, word in (
    ('12 14 11\n' + lines[0], '14 features'),
    ('12 13 12\n' + lines[0], 'labels'),
    (header + '\n' + lines[0], 'promises 12'),
    ('1 13 11\n' + '\n'.join(lines), 'it has more'),
    ('0:1\n13:1\n', 'line 2'),
    ('', 'no lines'),
  ):
    (here / 'bad.txt').write_text(text)
    with pytest.raises(errors.InputError, match=word):
      run_on('bad.txt')


def items(here, **more):
  """Makes a run on mine.csv, with nine users and twelve items."""
  random = np.random.default_rng(0)
  frame = pd.DataFrame({'user': np.repeat([f'u{i}' for i in range(9)], 8)})
  frame['item'] = [f'i{i}' for i in random.integers(0, 12, len(frame))]
  frame.to_csv('mine.csv', index=False)
  run = test_evaluate.untrained(
    here / 'run', 'items', 'fedss', data_dir='mine.csv', negatives=3, **more
  )
  found = trained.restore(str(run), {'data_dir': 'mine.csv'})
  names = found.dataset.class_names
  (run / 'classes.csv').write_text(
    '\n'.join(['class,name', *(f'{i},{name}' for i, name in enumerate(names))])
  )
  return run, found, frame, names


@pytest.mark.parametrize('more', [SMALL, pytest.param(SEQUENCE, marks=pytest.mark.slow)])
def test_users_get_lists_of_items_that_they_have_not(here, capsys, more):
  run, found, frame, names = items(here, **more)

  def rows_for(text):
    (here / 'given.csv').write_text(text)
    prediction.run(['given.csv'], run_dir=str(run), top=11, output='p.csv')
    return rows_of('p.csv')[1]

  prediction.run(['mine.csv'], run_dir=str(run), top=3, output='p.csv')
  model, weights = found.algorithm.model, found.weights
  rows = rows_of('p.csv')[1]
  assert [row[0] for row in rows] == [f'u{i}' for i in range(9)]
  for user, *row in rows:
    taken = list(dict.fromkeys(frame.item[frame.user == user]))
    ids = np.array([names.index(item) for item in taken[::-1]], np.int32)
    ages = np.arange(1, len(ids) + 1, dtype=np.float32)
    x = sparse.SparseFeatures(np.array([0, len(ids)], np.int32), ids, 1 / ages)
    embedding = model.embed(weights, x)
    [logits] = model.head.logits(embedding, weights.class_table, None).numpy()
    best = [names[c] for c in np.argsort(-logits) if names[c] not in taken][:3]
    assert row[::2] == best
  # A user with all items except one gets this item. Unknown items are left out, with a message.
  few = [f'all,{name}' for name in names[1:]] + ['new,elsewhere']
  rows = rows_for('\n'.join(['user,item', *few]))
  assert rows[0][1::2] == [names[0], *[''] * 10]
  assert len({*rows[1][1::2]}) == 11
  told = capsys.readouterr().err
  assert 'does not know' in told and '1 user with fewer' in told
  # A table may have only one user with one item.
  [[_, *row]] = rows_for(f'user,item\nann,{names[4]}\n')
  assert sorted(row[::2]) == sorted({*names} - {names[4]})
  for given, more, word in (
    (str(here), {}, 'users and their items'),
    ('given.csv', {'label_column': 'item'}, 'label_column'),
  ):
    with pytest.raises(errors.InputError, match=word):
      prediction.run([given], run_dir=str(run), **more)
  with pytest.raises(errors.InputError, match='name the columns user, item'):
    rows_for(f'kunde,item\nann,{names[4]}\n')


@pytest.mark.slow
@pytest.mark.parametrize('repeats', [True, False])
def test_predictions_for_the_test_are_those_of_the_evaluation(here, repeats):
  """Predicts from each user's history before the last item, also with exported files."""
  run, found, frame, _ = items(here, **SEQUENCE, leave_out_seen=not repeats)
  if not repeats:
    frame = frame.drop_duplicates()
  frame.groupby('user').head(-1).to_csv('before.csv', index=False)
  prediction.run(['before.csv'], run_dir=str(run), top=5, output='p.csv')
  rows = rows_of('p.csv')[1]
  last = frame.groupby('user').tail(1)
  hits = [item in row[1::2] for (_, item), row in zip(last.to_numpy(), rows, strict=True)]
  assert np.mean(hits) == pytest.approx(found.evaluator(found.weights)['hit@5'])
  export.run(str(run), 'file', top=12)
  prediction.run(['before.csv'], model='file', top=5, output='f.csv')
  for row, other in zip(rows, rows_of('f.csv')[1], strict=True):
    assert row[1::2] == other[1::2]


@pytest.mark.slow
def test_lines_of_text_are_continued(here):
  run = test_evaluate.untrained(
    here / 'run', 'shakespeare', 'fedavg', **test_evaluate._shakespeare(here)
  )
  found = trained.restore(str(run), {'data_dir': str(here)})
  alphabet = found.dataset.description.preprocessing['alphabet']

  def code(text):
    return [alphabet.index(c) for c in text]

  # The end of a text is its context. Short texts are padded with spaces on the left.
  contexts = ['a' * 77 + 'Oh,', 'To be or not to be '.rjust(80), 'b' * 79 + ' ']
  lines = ['aaa' + contexts[0], '', 'To be or  not to be ', 'b' * 79 + '\u00e9']
  (here / 'lines.txt').write_text('\n'.join(lines), encoding='utf-8-sig')

  def predict(name):
    return prediction.run([name], run_dir=str(run), top=3, output='p.csv')

  assert predict('lines.txt') == {}
  rows = rows_of('p.csv')[1]
  assert [row[0] for row in rows] == ['1', '3', '4']
  x = np.array(list(map(code, contexts)), np.uint8)
  model, weights = found.algorithm.model, found.weights
  logits = model.head.logits(model.embed(weights, x), weights.class_table, None)
  logits = logits.numpy()
  for row, scores in zip(rows, logits, strict=True):
    best = np.argsort(-scores, kind='stable')[:3]
    assert [cell[-1] for cell in row[1::2]] == [alphabet[c] for c in best]
    assert [float(cell) for cell in row[2::2]] == pytest.approx(scores[best], rel=1e-4)
  (here / 'latin.txt').write_bytes(b'caf\xe9\n')
  (here / 'empty.txt').write_text('\n')
  for name, word in (('latin.txt', 'UTF-8'), ('empty.txt', 'no lines')):
    with pytest.raises(errors.InputError, match=word):
      predict(name)


@pytest.mark.slow
@pytest.mark.parametrize('form', ['saved_model', 'tflite'])
def test_an_exported_model_predicts_as_its_run(here, form):
  run = photographs(here)
  _exports_predict_alike(run, 'photos', 2, [form])
  folder = here / f'as_{form}'
  with pytest.raises(errors.InputError, match='--top=3'):
    prediction.run(['photos'], model=str(folder), top=3)
  export.run(run, 'whole', form)  # The model asks for five of three classes.
  prediction.run(['photos'], model='whole', output='p.csv')
  assert len(rows_of('p.csv')[0]) == 1 + 2 * 3
  card = folder / 'model.json'
  text = card.read_text()
  for changed, word in (
    (text.replace(f'"{form}"', '"npz"'), 'only weights'),
    (text[:-9], 'damaged'),
    (text.replace('"num_classes"', '"classes"'), 'damaged'),
    (text.replace('"top": 2', '"top": 50'), 'damaged'),
    (text.replace('"images": {', '"pictures": {'), 'damaged'),
  ):
    card.write_text(changed)
    with pytest.raises(errors.InputError, match=word):
      prediction.run(['photos'], model=str(folder), top=2)
  card.write_text(text)
  (folder / ('saved_model.pb' if form == 'saved_model' else 'model.tflite')).write_bytes(b'damage')
  with pytest.raises(errors.InputError, match='cannot be loaded'):
    prediction.run(['photos'], model=str(folder), top=2)


def test_an_input_is_no_neighbour_of_itself_whatever_leads_to_it(here, capsys):
  run = photographs(here)

  def find(*given, gallery='photos', **more):
    return prediction.run(given, run_dir=run, neighbors=3, gallery=gallery, output='n.csv', **more)

  same = find('photos')
  for given in (str(here / 'photos'), './photos'):
    assert find(given) == same
    assert all(float(row[8]) > 1e-4 for row in rows_of('n.csv')[1])
  given = test_evaluate._table(here)
  table = test_evaluate.untrained(here / 'table', 'table', 'fedavg', **given)
  frame = pd.read_csv('items.csv')
  frame.to_csv('gallery.csv', index=False)
  frame[:1].to_csv('query.csv', index=False)  # Line 2 of another file.
  how = {'run_dir': str(table), 'neighbors': 1, 'gallery': 'gallery.csv'}
  prediction.run(['query.csv'], output='n.csv', **how)
  assert rows_of('n.csv')[1][0][-2:] == ['2', '0']
  prediction.run(['gallery.csv', 'query.csv'], output='n.csv', **how)
  [first, *_, last] = rows_of('n.csv')[1]
  assert first[-2] != '2'
  assert last[-2:] == ['2', '0']


def test_what_does_not_fit_is_refused_and_nothing_that_is_read_is_overwritten(here, capsys):
  run = photographs(here)
  (here / 'folder.png').mkdir()
  (here / 'empty').mkdir()
  (here / 'bad.png').write_bytes(b'no image')
  (here / 'mine.csv').write_text('a\n1\n')
  shutil.copytree('photos/cat', 'photos/unknown')
  near = {'neighbors': 1, 'gallery': 'photos'}
  given = test_evaluate._table(here)
  table = test_evaluate.untrained(here / 'table', 'table', 'fedavg', **given)
  before = (here / 'items.csv').read_bytes()
  for given, more, word in (
    ('empty', {}, 'no images'),
    ('bad.png', {}, 'not a readable image'),
    ('none.png', {}, 'does not exist'),
    ('mine.csv', {}, 'takes images'),
    ('photos', {'output': 'none/p.csv'}, 'no such folder'),
    ('photos', {'neighbors': 2, 'gallery': 'empty'}, 'no images'),
    ('photos', {'model': 'photos'}, 'has no model'),
    ('photos', {'picture': 'folder.png', 'output': None, **near}, 'cannot be written'),
    ('photos', {'label_column': 'a'}, 'only rows of numbers'),
    ('items.csv', {'run_dir': table, 'output': 'items.csv'}, 'is read'),
    ('photos', {'output': '/proc/p.csv'}, 'cannot be written'),
  ):
    with pytest.raises(errors.InputError, match=word):
      prediction.run([given], **{'run_dir': run, 'output': 'p.csv', **more})
  assert not (here / 'p.csv').exists()
  assert (here / 'items.csv').read_bytes() == before
  assert prediction.run(['photos/unknown'], run_dir=run) == {}
  assert '0 of 9 have labels' in capsys.readouterr().out


@pytest.mark.parametrize(
  ('kind', 'shape', 'how'),
  [
    ('images', [8, 8], {'fit': 'bend'}),
    ('images', [8], {}),
    ('rows', [3], {'mean': [1.0], 'deviation': [1.0]}),
    ('rows', [1], {'mean': ['a'], 'deviation': [1.0]}),
    ('rows', [1], {'mean': [1.0]}),
    ('rows', [1], {'columns': 'abc'}),
    ('sparse', [8], {'num_features': 8}),
    ('sparse', [8], {'hashed': True, 'num_features': 0}),
    ('sparse', [8], {'hashed': False, 'num_features': 8, 'history': 5}),
    ('characters', [80], {}),
  ],
)
def test_a_description_fits_its_kind(kind, shape, how):
  found = {
    'kind': kind,
    'shape': shape,
    'dtype': 'float32',
    'label_sets': False,
    'preprocessing': how,
    'num_classes': 3,
    'num_clients': 1,
    'largest_label_set': 1,
  }
  with pytest.raises(ValueError, match=r'preprocessing|shape|sizes'):
    description.from_json(found)


@pytest.mark.slow
def test_damaged_images_are_left_out_counted_and_named(here, capsys, monkeypatch):
  monkeypatch.setattr(prediction, '_BLOCK', 4)
  run = photographs(here)

  def predict(*given, **more):
    return prediction.run(given, run_dir=run, top=2, output='p.csv', **more)

  scores = predict('photos')
  _, expected = rows_of('p.csv')
  # A whole block of images, and one image in another block.
  bad = [here / 'photos' / 'cat' / f'-{i}.jpg' for i in range(4)]
  for path in [*bad, here / 'photos' / 'emu' / 'z.png']:
    path.write_bytes(b'no image')
  shutil.make_archive('photos', 'zip', 'photos')
  for given in ('photos', 'photos.zip'):
    capsys.readouterr()
    assert predict(given, neighbors=3, gallery='photos').items() >= scores.items()
    header, rows = rows_of('p.csv')
    assert [r[1:5] for r in rows if r[1]] == [r[1:] for r in expected]
    left_out = [row for row in rows if not row[1]]
    assert [row[0].split('/')[-1] for row in left_out[:4]] == [b.name for b in bad]
    assert rows[-1] == [f'{given}/emu/z.png', *[''] * (len(header) - 1)]
    assert f'5 of 32 images left out, first {given}/cat/-0.jpg' in capsys.readouterr().err
  # Pictures show only images that have predictions.
  inputs = raw_examples.read(['photos'], trained.load(run).description, size=4)
  pixels = np.concatenate([b.raw[0] for b in inputs.blocks if b.names])
  for number in (0, len(expected) - 1):
    np.testing.assert_array_equal(inputs.image(number), pixels[number])
  before = (here / 'p.csv').read_bytes()
  for given, more, word in (
    (['photos'], {'corrupt': 'fail'}, 'cat/-0.jpg is not a readable image'),
    (list(map(str, bad)), {}, 'no other image is'),
    (['photos/dog'], {'neighbors': 1, 'gallery': str(bad[0])}, '-0.jpg is not'),
  ):
    with pytest.raises(errors.InputError, match=word):
      predict(*given, **more)
  assert (here / 'p.csv').read_bytes() == before


def test_grey_models_refuse_colours(here):
  path = test_evaluate.untrained(here / 'run', 'glyphs', 'fedss', **test_evaluate._GLYPHS)
  grey = np.arange(30 * 28, dtype=np.uint8).reshape(30, 28)
  (here / 'grey.png').write_bytes(images_on_disk.encoded(grey))
  (here / 'colour.png').write_bytes(images_on_disk.encoded(images_on_disk.quarters()))
  assert prediction.run(['grey.png'], run_dir=str(path)) == {}
  with pytest.raises(errors.InputError, match='has colours'):
    prediction.run(['grey.png', 'colour.png'], run_dir=str(path))


@pytest.mark.slow
def test_an_index_beside_the_exact_answer(here, monkeypatch, capsys):
  """Uses a stand-in for FAISS that finds every second point."""
  run = photographs(here)

  class Half:
    def __init__(self, dims, links):
      self.hnsw = types.SimpleNamespace()

    def add(self, points):
      self._points = points

    def search(self, queries, k):
      far = -queries @ self._points[::2].T
      found = 2 * np.argsort(far, axis=1, kind='stable')[:, :k]
      return None, np.pad(found, [(0, 0), (0, k - found.shape[1])], constant_values=-1)

  module = types.SimpleNamespace(
    IndexHNSWFlat=Half, omp_get_max_threads=lambda: 2, omp_set_num_threads=lambda n: None
  )
  monkeypatch.setitem(sys.modules, 'faiss', module)
  prediction.run(
    ['photos'], run_dir=run, neighbors=26, gallery='photos', index='hnsw', output='p.csv'
  )
  # 13 or 14 of the 26 other points have even numbers, except the query itself.
  assert 'hnsw finds 0.5' in capsys.readouterr().out
  monkeypatch.setitem(sys.modules, 'faiss', None)
  with pytest.raises(errors.InputError, match='pip install'):
    neighbors.check('hnsw')


def test_neighbours_are_no_items(capsys):
  """A user who has nearly all items gets empty cells in place of items."""
  heading = ['input', 'class_1', 'score_1', 'class_2', 'score_2', 'neighbor_1', 'distance_1']
  with prediction._writer(None, heading) as show:
    show(['ann', 'pen', '2', '', '', 'bob', '0.5'])
    show(['ben', '', '', '', '', 'bob', '0.5'])
    show(['cat'])
  assert capsys.readouterr().out.splitlines() == [
    'ann: pen 2; nearest: bob 0.5',
    'ben: no new item; nearest: bob 0.5',
    'cat: left out',
  ]


def test_labels_that_the_gallery_lacks_are_no_misses():
  points = np.eye(3, dtype=np.float32)

  def block(folders):
    return types.SimpleNamespace(
      names=folders, keys=[*range(len(folders))], raw=(), folders=folders, labels=None, damaged=()
    )

  model = types.SimpleNamespace(predict=lambda: {'embedding': points})
  gallery = types.SimpleNamespace(
    count=3, noun='image', blocks=[block(['cat', 'cat', 'dog'])], image=None
  )
  found = prediction._Neighbors(model, gallery, 1, neighbors.EXACT)
  query = block(['inbox', 'cat'])
  query.keys = ['x', 'y']
  found.add([['a'], ['b']], query, points[[2, 0]])
  assert found.scores() == {'retrieval_recall@1': 1.0}


def test_the_recall_of_an_index_counts_queries_of_small_blocks(monkeypatch, capsys):
  monkeypatch.setattr(prediction, '_CHECKED', 10)
  embedding = {'embedding': np.eye(4, dtype=np.float32)}
  block = types.SimpleNamespace(
    names=[*'abcd'], keys=[*'abcd'], raw=(), folders=(), labels=None, damaged=()
  )
  model = types.SimpleNamespace(predict=lambda: embedding)
  gallery = types.SimpleNamespace(count=4, noun='row', blocks=[block], image=None)
  found = prediction._Neighbors(model, gallery, 1, neighbors.EXACT)
  found._kind = neighbors.HNSW
  for _ in range(5):
    found.add([[name] for name in block.names], block, embedding['embedding'])
  found.scores()
  assert 'neighbors of 12 inputs' in capsys.readouterr().out
