"""Identifies a data set by its content, independent of where its files are."""

import hashlib
from collections.abc import Iterable

import numpy as np
import scipy.sparse

from tff_xc.data import client_data, partition as partition_lib

# The fingerprint reads all examples of some clients: at least `_CLIENTS` clients, and so
# many that they have about `_EXAMPLES` training examples.
_EXAMPLES, _CLIENTS = 500, 3


def fingerprint(dataset: client_data.FederatedDataset) -> dict[str, int | str]:
  """Returns counts and checksums of a data set's content.

  The checksums cover every client's id and labels. If the data set is `exact`, the
  checksums also cover about 500 training examples of evenly spread clients, and all
  examples of `test`, `validation` and `retrieval`, block by block.
  """
  pool, partition = dataset.train.pool, dataset.train.partition
  held = partition.numbers
  counts = {'classes': dataset.num_classes, 'clients': len(partition), 'examples': len(held)}
  labels = ['\0'.join(partition.client_ids), partition.offsets, pool.labels[held]]
  checksums = {'labels_checksum': checksum(labels)}
  if dataset.exact:
    some = map(partition.of_client, _spread(partition))
    checksums['train_checksum'] = checksum(map(pool.examples, some))
    for split in ('test', 'validation', 'retrieval'):
      held_out = getattr(dataset, split)
      if held_out is not None:
        counts[f'{split}_examples'] = len(held_out)
        checksums[f'{split}_checksum'] = checksum(held_out.blocks())
  if dataset.source_checksum:
    checksums['source_checksum'] = dataset.source_checksum
  if dataset.class_names is not None:
    checksums['names_checksum'] = checksum(dataset.class_names)
  if dataset.propensity:
    checksums['propensity_checksum'] = checksum(dataset.propensity)
  return counts | checksums


def _spread(partition: partition_lib.Partition) -> np.ndarray:
  """Returns the indices of evenly spread clients with about 500 examples in total."""
  mean = max(len(partition.numbers) / max(len(partition), 1), 1)
  wanted = max(int(_EXAMPLES / mean), _CLIENTS)
  if wanted >= len(partition):
    return np.arange(len(partition))
  return np.arange(wanted) * (len(partition) - 1) // (wanted - 1)


def checksum(parts: Iterable) -> str:
  """Returns 16 hexadecimal digits, a hash of texts, arrays, sparse matrices and tuples."""
  found = hashlib.blake2b(digest_size=8)
  for part in parts:
    _add(found, part)
  return found.hexdigest()


def _add(found, value) -> None:
  if isinstance(value, str):
    found.update(f'{len(value)};{value}'.encode())
  elif isinstance(value, tuple):
    found.update(f'{len(value)};'.encode())
    for part in value:
      _add(found, part)
  elif scipy.sparse.issparse(value):
    _add(found, (value.indptr, value.indices, value.data))
  else:
    array = np.ascontiguousarray(value)
    found.update(f'{array.dtype.str}{array.shape};'.encode())
    found.update(array.data.cast('B') if array.size else b'')
