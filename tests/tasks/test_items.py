"""Runs on histories of items: training, resuming and evaluating."""

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

from launch import evaluate, export, prediction
from tasks import configuration, experiment
from tff_xc.data import sparse
from tff_xc.round import process

TINY = {
  **{'num_classes': 40, 'num_clients': 15, 'embedding_dim': 8},
  **{'clients_per_round': 4, 'rounds': 2, 'eval_every': 1},
}
SEQUENCE = {'encoder': 'sequence', 'attention_blocks': 1, 'dropout': 0.3}
BAG = {'hidden_dim': 8}
pytestmark = pytest.mark.usefixtures('in_process')


def run(path, algorithm='fedss', **changes):
  """Trains. Returns the summary, and metrics.csv without times."""
  given = {**TINY, **changes}
  if algorithm == 'centralized':
    del given['clients_per_round']
  config = configuration.resolve('items-demo', algorithm, given)
  summary = experiment.assemble(config, run_dir=str(path)).run(str(path))
  metrics = pd.read_csv(path / 'metrics.csv')
  return summary, metrics.drop(columns='seconds')


@pytest.mark.slow
@pytest.mark.parametrize('network', [SEQUENCE, BAG])
def test_a_run_that_stops_ends_as_one_that_does_not(tmp_path, network):
  _, whole = run(tmp_path / 'whole', **{**network, 'rounds': 4})
  run(tmp_path / 'parts', **network)
  _, parts = run(tmp_path / 'parts', **{**network, 'rounds': 4})
  pd.testing.assert_frame_equal(whole, parts)
  assert whole['loss'].iloc[1:].notna().all()


@pytest.mark.slow
@pytest.mark.parametrize('network', [SEQUENCE, BAG])
def test_a_run_tells_its_best_round_and_another_starts_from_its_last(tmp_path, network):
  """The features use class rows, which are copied, too."""
  summary, source = run(tmp_path / 'source', rounds=3, **network)
  best = source['ndcg@10_validation'].idxmax()
  chosen = summary['best_round']
  assert chosen['by'] == 'ndcg@10_validation' and chosen['round'] == best
  assert chosen['hit@10'] == source['hit@10'][best]
  assert set(summary['baselines']) == {'popularity', 'markov', 'cooccurrence'}
  _, found = run(tmp_path / 'run', **network, start_from=str(tmp_path / 'source'))
  scores = [name for name in source if name.startswith(('hit', 'ndcg'))]
  np.testing.assert_array_equal(found[scores].iloc[0], source[scores].iloc[3])
  assert (source[scores].iloc[0] != source[scores].iloc[3]).any()


@pytest.mark.slow
def test_lists_and_files_are_of_the_round_that_validation_chose(tmp_path, capsys):
  random, path = np.random.default_rng(0), tmp_path / 'run'
  frame = pd.DataFrame({'user': np.repeat(range(9), 8)})
  frame['item'] = [f'i{i}' for i in random.integers(0, 12, len(frame))]
  table = str(tmp_path / 'mine.csv')
  frame.to_csv(table, index=False)
  how = {'data_dir': table, 'negatives': 3, 'rounds': 3, 'eval_every': 1}
  config = configuration.resolve('items', 'fedss', {**how, 'embedding_dim': 4})
  experiment.assemble(config, run_dir=str(path)).run(str(path))
  metrics = pd.read_csv(path / 'metrics.csv')
  metrics['ndcg@10_validation'] = np.where(metrics['round'] == 2, 0.9, 0.1)
  metrics.to_csv(path / 'metrics.csv', index=False)
  texts = {}
  for wanted in ('chosen', '2', 'last'):
    output = tmp_path / f'{wanted}.csv'
    given = {'run_dir': str(path), 'round_wanted': wanted}
    prediction.run([table], **given, output=str(output))
    texts[wanted] = output.read_text()
  assert texts['chosen'] == texts['2'] != texts['last']
  card = export.run(str(path), str(tmp_path / 'file'), top=12)
  assert card['rounds'] == 2
  evaluate.run(str(path))
  assert 'after 3 rounds; launch.predict' in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize(
  ('algorithm', 'changes'),
  [
    ('fullsoftmax', {}),
    ('negonly', {'negatives': 5}),
    ('posonly', {}),
    ('fedavgm', {}),
    ('fedadam', {}),
    ('scaffold', {}),
    ('centralized', {'steps_per_round': 2}),
    ('fedss', {'negatives': 5, 'dp': 'central', 'dp_clip': 0.5}),
    ('fedss', {'negatives': 5, 'dp': 'local', 'dp_clip': 0.5}),
  ],
)
@pytest.mark.parametrize('network', [SEQUENCE, BAG])
def test_algorithms_train_items_that_have_one_row(tmp_path, algorithm, changes, network):
  _, metrics = run(tmp_path / 'run', algorithm, **changes, **network)
  assert np.isfinite(metrics['loss'][1:]).all()
  assert (metrics['loss'][1:] < 50).all()


@pytest.mark.slow
def test_a_step_on_a_history_is_the_mean_over_its_items():
  """All other items are negatives, so the loss is the softmax over all items."""
  how = {**SEQUENCE, 'dropout': 0.0, 'negatives': 39, 'rounds': 1, 'local_epochs': 1}
  config = configuration.resolve('items-demo', 'fedss', {**TINY, **how})
  made = experiment.assemble(config)
  built = process.build_process(made.algorithm, 0)
  state = built.initialize()
  weights, model = built.get_model_weights(state), made.algorithm.model
  cohort = made.algorithm.sampling.cohorts(made.dataset, 0)(0).examples
  losses = []
  for client in cohort:
    for number, y in enumerate(client.labels):
      a, b = client.x.row_splits[number : number + 2]
      order = np.argsort(client.x.values[a:b])  # From the oldest to the newest item.
      items = np.append(client.x.ids[a:b][order], y)
      x = sparse.SparseFeatures(
        np.int32([0, len(items) - 1]),
        np.int32(items[:-1]),
        np.float32(1 / np.arange(len(items) - 1, 0, -1)),
      )
      embeddings, _ = model.encode(weights, x, True, tf.constant([0, 0]))
      logits = model.logits(embeddings, weights.class_table, None)
      each = tf.nn.sparse_softmax_cross_entropy_with_logits(items[1:], logits)
      losses.append(np.mean(each))
  output = built.next(state, cohort)
  assert len(losses) == float(output.metrics['examples'])
  assert float(output.metrics['loss']) == pytest.approx(np.mean(losses), rel=1e-4)
