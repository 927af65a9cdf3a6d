"""Settings with which the procedural tasks train in seconds."""

GLYPHS = {
  'num_classes': 10,
  'num_clients': 8,
  'classes_per_client': 3,
  'examples_per_client': 12,
  'embedding_dim': 4,
  'batch_size': 4,
  'clients_per_round': 3,
  'eval_every': 2,
}

# Flags of launch.train.
SPARSE_WORDS = (
  '--task=sparse-words',
  '--num_classes=10',
  '--num_features=32',
  '--feature_dim=4',
  '--hidden_dim=4',
  '--embedding_dim=4',
  '--classes_per_client=2',
  '--clients_per_round=3',
)
