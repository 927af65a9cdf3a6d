"""Finds a graph's ops on tensors that contain all rows of a table, by the tensors' shapes."""

# These ops copy nothing. They are an argument or another name for a tensor.
_FREE = ('Placeholder', 'Identity', 'NoOp')


def is_scatter(op) -> bool:
  """Whether the op writes rows into a tensor, possibly in place."""
  return op.type == 'TensorScatterUpdate'


def work_on_all_rows(concrete, num_rows: int) -> list[str]:
  """Returns the ops whose cost grows with the number of rows.

  Args:
    concrete: a concrete function of tensors that have `num_rows` rows.
    num_rows: the number of rows. No other axis may have this length.

  Returns:
    Descriptions of the ops with such a tensor as input or output, except ops that gather
    rows from it or scatter rows into it.
  """

  def has_all_rows(tensors):
    return any(t.shape.rank is None or num_rows in t.shape for t in tensors)

  found = []
  for op in concrete.graph.get_operations():
    if op.type in _FREE:
      continue
    given, taken = op.outputs, list(op.inputs)
    if is_scatter(op):
      given, taken = [], taken[1:]
    elif op.type == 'GatherV2':
      taken = taken[1:]
    if has_all_rows(given) or has_all_rows(taken):
      found.append(f'{op.type} {op.name}')
  return found
