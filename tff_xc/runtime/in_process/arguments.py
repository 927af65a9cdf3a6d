"""Splits the argument of a computation into the server's values and each client's values."""

from collections.abc import Sequence

import tensorflow_federated as tff

from tff_xc.runtime.in_process import updates, values


class Argument:
  """The argument of a computation.

  Attributes:
    num_clients: the number of clients; None if the argument has no values of clients.
    is_lazy: whether a sequence creates clients' values on access.
  """

  def __init__(self, argument, type_spec: tff.Type | None):
    self.num_clients = None
    self.is_lazy = False
    self._type = tff.StructType([]) if type_spec is None else type_spec
    self._value = self._take(() if type_spec is None else argument, self._type)

  def _take(self, value, type_spec):
    """Returns a tree of the server's values and lists of clients' values."""
    if values.at_clients(type_spec):
      return self._take_clients(value)
    if isinstance(type_spec, tff.FederatedType):
      return values.from_python(value, type_spec.member)
    if values.contains_placement(type_spec):
      parts = values.parts_of(value, type_spec)
      pairs = zip(parts, values.members(type_spec), strict=True)
      return tuple([self._take(part, member) for part, member in pairs])
    return values.from_python(value, type_spec)

  def _take_clients(self, given):
    text = str | bytes | range  # TFF does not accept these types.
    if isinstance(given, text) or not isinstance(given, Sequence):
      raise TypeError(f'expected a list with a value for each client, got {type(given)}')
    if self.num_clients not in (None, len(given)):
      raise ValueError(f'arguments for {self.num_clients} and for {len(given)} clients')
    self.num_clients = len(given)
    self.is_lazy |= not isinstance(given, list | tuple)
    return given

  @property
  def only_own(self) -> Sequence | None:
    """The argument's sequence of clients' values; None if there is not exactly one sequence."""
    found = []
    self._view(lambda value, _: value, lambda given, _: found.append(given))
    return found[0] if len(found) == 1 else None

  def of_server(self):
    """Returns the server's view of the argument, without clients' values."""
    return self._view(lambda value, _: value, lambda given, _: ())

  def of_client(self, index: int):
    """Returns a client's view of the argument. This call creates lazy values."""

    def shared(value, type_spec):
      at_all = isinstance(type_spec, tff.FederatedType) and type_spec.placement is tff.CLIENTS
      return value if at_all else ()

    def own(given, member):
      value = given[index]
      try:
        return values.from_python(value, member)
      except (TypeError, NotImplementedError) as e:
        raise type(e)(f'client {index} (from 0): {e}') from e

    return self._view(shared, own)

  def whole(self):
    """Returns the whole argument, with lists of clients' values."""
    return self._view(
      lambda value, _: value, lambda given, member: [values.from_python(v, member) for v in given]
    )

  def release(self) -> None:
    """Drops the references to donated tensors."""

    def drop(value, type_spec):
      values.map_leaves(
        lambda leaf, _: isinstance(leaf, updates.GivenUp) and leaf.drop(), value, type_spec
      )

    self._view(drop, lambda given, _: None)

  def _view(self, of_server, of_clients):
    return values.map_placed(self._value, self._type, of_server, of_clients)
