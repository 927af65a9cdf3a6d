"""Text files of the Extreme Classification Repository."""

from datasets.xc import sets as xc_sets


def write(path, x, y, form='examples') -> None:
  """Writes examples with features and labels in CSR form."""
  numbers = dict(zip('NDL', [*x.shape, y.shape[1]], strict=True))
  rows = [' '.join(str(numbers[name]) for name in xc_sets.FORMS[form].split())]
  for i in range(len(x.indptr) - 1):
    own = slice(*x.indptr[i : i + 2])
    pairs = [
      f'{f}:{v:.9g}' for f, v in zip(x.indices[own], x.data[own], strict=True)
    ]
    labels = list(map(str, y.indices[slice(*y.indptr[i : i + 2])]))
    if form == 'labels':
      rows.append(' '.join(f'{label}:1' for label in labels))
    else:
      begin = [','.join(labels)] if form == 'examples' else []
      rows.append(' '.join(begin + pairs))
  path.write_text('\n'.join([*rows, '']))
