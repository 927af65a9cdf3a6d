"""Data sets of `tff.simulation` and `tf.data` as client data and as cohorts."""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests import tiny
from tff_xc import errors
from tff_xc.data import client_data, from_tff
from tff_xc.round import cohort, examples

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=[9, tiny.FEATURES]).astype(np.float32)
Y = np.array([4, 4, 1, 7, 0, 11, 2, 2, 2])
ENDS = {'ann': (0, 4), 'bo': (4, 4), 'cy': (4, 9)}


def simulated(keys=('x', 'y')):
  """Returns the clients of `ENDS` as TFF's client data, which leaves out the empty client."""
  return tff.simulation.datasets.TestClientData(
    {
      name: collections.OrderedDict(zip(keys, (X[a:b], Y[a:b]), strict=True))
      for name, (a, b) in ENDS.items()
    }
  )


def slices(a, b, **more):
  return tf.data.Dataset.from_tensor_slices((X[a:b], Y[a:b]))


def check(found, names=tuple(ENDS)):
  assert found.client_ids == [*names]
  for name in names:
    a, b = ENDS[name]
    x, y = found.examples(name)
    np.testing.assert_array_equal(x, X[a:b])
    np.testing.assert_array_equal(y, Y[a:b])
    assert (x.dtype, y.dtype) == (np.float32, np.int32)


@pytest.mark.parametrize(
  ('keys', 'vectors', 'batch'),
  [
    *((('x', 'y'), False, batch) for batch in (0, 1, 3)),
    (('image', 'label'), False, 0),
    (('image', 'label'), True, 3),
    (None, False, 0),
    (None, False, 3),
    (None, True, 0),
    (None, True, 1),
  ],
)
def test_every_form_of_elements_gives_the_same_clients(keys, vectors, batch):
  x, y = keys or ('x', 'y')

  def form(dataset):
    if vectors:  # Labels of shape [1], and a key with another kind of values.
      more = {'name': 'a text'}
      dataset = dataset.map(lambda e: {**e, y: e[y][None], **more})
    if not keys:
      dataset = dataset.map(lambda e: (e['x'], e['y']))
    return dataset.batch(batch) if batch else dataset

  source = simulated((x, y)).preprocess(form)
  check(from_tff.as_client_data(source, x=x, y=y))
  check(from_tff.as_client_data(source, ['cy', 'ann'], x=x, y=y), ('cy', 'ann'))
  datasets = [*map(source.create_tf_dataset_for_client, ENDS)]
  check(from_tff.as_client_data(datasets, [*ENDS], x=x, y=y))
  found = from_tff.as_client_data(datasets, x=x, y=y)
  assert found.client_ids == ['0', '1', '2']


def test_sets_of_labels_and_own_client_data():
  sets = RANDOM.random([9, 12]) < 0.3

  def of(a, b):
    return tf.data.Dataset.from_tensor_slices((X[a:b], sets[a:b]))

  for datasets in ([of(0, 4), of(4, 9)], [of(0, 4).batch(3), of(4, 9)]):
    found = from_tff.as_client_data(datasets)
    np.testing.assert_array_equal(found.pool.labels.toarray(), sets)
    # Client data of this package are not converted.
    [again] = examples.ClientExamples.from_tff(found, ['1'])
    np.testing.assert_array_equal(again.all_labels, np.nonzero(sets[4:])[1])
    assert again.client_id == 1
    assert again.labels.row_splits[-1] == sets[4:].sum()


def test_a_cohort_of_tff_data_is_the_cohort_of_its_arrays():
  expected = [
    examples.ClientExamples(X[a:b], y := Y[a:b].astype(np.int32), np.int64(k), y)
    for k, (a, b) in enumerate(ENDS.values())
  ]
  source = simulated(('pixels', 'label'))
  names = {'x': 'pixels', 'y': 'label'}
  of = examples.ClientExamples.from_tff
  for found, places in (
    (of(source, ['cy', 'ann'], **names), [2, 0]),
    (of([slices(4, 9).batch(2), slices(0, 4)], [2, 0]), [2, 0]),
    (of(source, **names), [0, 1, 2]),
  ):
    for client, place in zip(found, places, strict=True):
      for part, wanted in zip(client, expected[place], strict=True):
        np.testing.assert_array_equal(part, wanted, strict=True)


def test_what_sampling_draws_is_what_next_takes(in_process):
  dataset = client_data.FederatedDataset('mine', 12, from_tff.as_client_data(simulated()))
  process = tiny.shared_process()
  drawn = cohort.UniformClients(3).cohorts(dataset, 0)(5)
  assert (len(drawn), drawn.skipped, drawn.drawn) == (2, 1, 3)
  state = process.initialize()
  for part in (slice(None), slice(1), slice(None, None, -1)):
    of_tff = examples.ClientExamples.from_tff(simulated(), [*drawn.client_ids[part]])
    found, expected = (process.next(state, c).state.weights for c in (drawn[part], of_tff))
    tiny.assert_same_weights(found, expected, 0)
    assert not np.array_equal(found.class_table, state.weights.class_table)


def failing():
  yield X[0], 1 / 0


FAILING = tf.data.Dataset.from_generator(
  failing, output_signature=(tf.TensorSpec(X[0].shape), tf.TensorSpec([], tf.int32))
)
RAGGED = tf.data.Dataset.from_generator(
  lambda: ((np.zeros(n, np.float32), n) for n in (2, 3)),
  output_signature=(tf.TensorSpec([None]), tf.TensorSpec([], tf.int32)),
)


@pytest.mark.parametrize(
  ('source', 'ids', 'said'),
  [
    ([slices(0, 4).map(lambda x, y: x)], None, 'no labels'),
    ([simulated(('pixels', 'label')).create_tf_dataset_for_client('cy')], None, "'pixels'"),
    ([slices(0, 4).map(lambda x, y: (x, x))], None, 'labels are float32'),
    ([slices(0, 4).map(lambda x, y: (x, tf.as_string(y)))], None, 'labels are .*string'),
    ([slices(0, 4).batch(2).map(lambda x, y: (x[:1], y))], None, '1 example with 2 labels'),
    ([slices(0, 4).batch(2).map(lambda x, y: (x[0, 0], y))], None, 'batch both'),
    ([RAGGED], None, 'bring them to one shape'),
    ([RAGGED.ragged_batch(2)], None, 'Ragged'),
    ([slices(0, 4), slices(4, 9).map(lambda x, y: (x[:2], y))], None, 'client 1 '),
    ([FAILING], None, 'client 0: .*division'),
    ([slices(0, 4).map(lambda x, y: (x, y, y))], None, r'3 parts; .*\(x, y\)'),
    # These elements can be one example or a batch.
    ([slices(0, 4).map(lambda x, y: (x[:1], y[None]))], None, r'\(1,\).*or a batch'),
    ([slices(0, 4).batch(1, drop_remainder=True)], None, 'or a batch'),
    ([slices(0, 4).map(lambda x, y: (x, x > 0))], None, 'or a batch.*integer'),
    ([slices(0, 4).batch(3).map(lambda x, y: (x, y > 3))], None, 'bool .*known n'),
    ([slices(0, 4).map(lambda x, y: (x, y[None] > 3))], None, 'bool .*cast'),
    ([slices(0, 4).repeat()], None, 'never ends'),
    ([slices(0, 4).map(lambda x, y: (x, y + 2**40))], None, 'does not fit int32'),
    ([X], None, 'ndarray'),
    (slices(0, 4), None, 'a list'),
    ([], None, 'no clients'),
    (simulated(), ['bob'], "no client 'bob'.*3 clients.*'ann'"),
    ([slices(0, 4)], [1, 2], '1 data set and 2 ids'),
    ([slices(0, 4)], ['ann'], 'whole numbers'),
    (simulated(), 'ann', 'a list of clients'),
    (simulated(), ['ann', 'ann'], 'named twice'),
    (from_tff.as_client_data(simulated()), ['ann', 'ann'], 'named twice'),
    (from_tff.as_client_data(simulated()), [], 'no clients'),
    (simulated(), [], 'no clients'),
    ([slices(0, 4)], 7, 'a list of clients'),
    (simulated(), 7, 'a list of clients'),
    ([slices(0, 4)], [2**63], r'below 2\*\*63'),
    ([slices(0, 4)], [-1], 'whole numbers'),
    ([slices(0, 4), slices(4, 9)], ['01', '1'], 'same number'),
  ],
)
def test_what_does_not_fit_is_one_sentence(source, ids, said):
  with pytest.raises(errors.InputError, match=said) as raised:
    examples.ClientExamples.from_tff(source, ids)
  assert '\n' not in str(raised.value)
  assert len(str(raised.value)) < 250
