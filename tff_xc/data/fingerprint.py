"""Identifies a data set by its content, wherever its files lie."""

import hashlib

import numpy as np

from tff_xc.data import client_data

# The most clients whose labels are read; drawing the labels of one procedural
# client takes 0.1 ms.
_CLIENTS = 10_000
# The least numbers of training examples, and of clients, that are decoded.
# Clients are decoded whole.
_EXAMPLES, _DECODED_CLIENTS = 500, 3


def fingerprint(
  dataset: client_data.FederatedDataset,
) -> dict[str, int | str]:
  """Returns counts and checksums of a data set's content.

  Reads every client's id. Reads the labels of every client, or of 10,000 evenly
  spread ones if there are more. If the data set is `exact`, it also decodes
  about 500 training examples of evenly spread clients, and all held-out
  examples.

  Args:
    dataset: pass a result of `client_data.held_out_once`, so that the held-out
      examples are not decoded a second time.

  Returns:
    By name, in this order if they apply: `classes`, `clients`, `examples`
    (or `examples_of_10000_clients`), `test_examples`, `retrieval_examples`; then
    checksums of 16 hexadecimal digits: `labels_checksum` (with the client ids),
    `train_checksum`, `test_checksum`, `retrieval_checksum`,
    `propensity_checksum`.
  """
  clients, ids = dataset.train, dataset.train.client_ids
  looked_at = _spread(ids, _CLIENTS)
  labels = [clients.labels(client_id) for client_id in looked_at]
  examples = sum(map(len, labels))
  some = '' if looked_at is ids else f'_of_{len(looked_at)}_clients'
  counts = {
    'classes': dataset.num_classes,
    'clients': len(ids),
    f'examples{some}': examples,
  }
  checksums = {'labels_checksum': _checksum(['\0'.join(ids), *labels])}
  if dataset.exact:
    mean = max(examples / len(looked_at), 1) if looked_at else 1
    wanted = max(int(_EXAMPLES / mean), _DECODED_CLIENTS)
    checksums['train_checksum'] = _checksum(
      [clients.examples(client_id) for client_id in _spread(ids, wanted)]
    )
    for split in ('test', 'retrieval'):
      if load := getattr(dataset, split):
        x, y = load()
        rows = y.row_splits[1:] if isinstance(y, tuple) else y
        counts[f'{split}_examples'] = len(rows)
        checksums[f'{split}_checksum'] = _checksum([x, y])
  if dataset.propensity:
    checksums['propensity_checksum'] = _checksum(list(dataset.propensity))
  return counts | checksums


def _spread(ids: list[str], wanted: int) -> list[str]:
  """Returns `wanted` of the ids, or all, evenly spread from first to last."""
  if wanted >= len(ids):
    return ids
  return [ids[k * (len(ids) - 1) // (wanted - 1)] for k in range(wanted)]


def _checksum(parts) -> str:
  found = hashlib.blake2b(digest_size=8)
  _add(found, parts)
  return found.hexdigest()


def _add(found, value) -> None:
  """Hashes text, arrays with their shapes, and nested lists of them."""
  if isinstance(value, list | tuple):
    found.update(f'{len(value)};'.encode())
    for part in value:
      _add(found, part)
  elif isinstance(value, str):
    found.update(f'{len(value)};{value}'.encode())
  else:
    array = np.ascontiguousarray(value)
    found.update(f'{array.dtype.str}{array.shape};'.encode())
    found.update(array.data.cast('B') if array.size else b'')
