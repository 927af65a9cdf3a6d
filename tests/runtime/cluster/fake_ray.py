"""A stand-in for Ray, for tests of `ray_crew`."""

import sys
import types

from tff_xc.runtime.cluster import connection
from tff_xc.runtime.cluster import dispatch
from tff_xc.runtime.cluster import ray_crew


class RayError(Exception):
  """As `ray.exceptions.RayError`."""


class RayTaskError(RayError):
  """As `ray.exceptions.RayTaskError`."""

  def __init__(self, cause):
    super().__init__(f'a trace\nof many lines\n{cause}')
    self.cause = cause


class Actor:
  """Answers what its own `answers`, or `Ray.answers`, has for each method."""

  def __init__(self, ray):
    self._ray, self.answers = ray, {}
    ray.actors.append(self)

  def __getattr__(self, method):
    def remote(*args):
      self._ray.calls.append((method, args))
      for arg in args:
        self._ray.put(arg)
      return self, method

    return types.SimpleNamespace(remote=remote)


def described(reads_data=False, node='a', **changes):
  """Returns what a worker says of itself."""
  info = dispatch.Info(1, f'machine {node}', reads_data, node)
  return info, ray_crew.describe_program() | changes


class Ray(types.ModuleType):
  """Stands for Ray; a ticket is (actor, method)."""

  def __init__(self, reads_data=False, **answers):
    super().__init__('ray')
    self.exceptions = types.SimpleNamespace(
      RayError=RayError, RayTaskError=RayTaskError
    )
    self.answers = {'describe': described(reads_data)} | answers
    self.actors, self.calls, self.killed = [], [], []

  def remote(self, **_):
    new = types.SimpleNamespace(remote=lambda *_: Actor(self))
    return lambda cls: new

  def wait(self, tickets, num_returns, timeout):
    del num_returns, timeout
    return [t for t in tickets if self._answer(t) is not None], []

  def _answer(self, ticket):
    actor, method = ticket
    return actor.answers.get(method, self.answers.get(method))

  def get(self, ticket):
    found = self._answer(ticket)
    if isinstance(found, Exception):
      raise found
    return found

  def put(self, value):
    if isinstance(value, Exception):
      raise value

  def kill(self, actor, no_restart):
    self.killed.append(actor)
    assert no_restart


def beginning(monkeypatch):
  """Returns a function that makes a crew of one worker, and its Ray."""
  monkeypatch.setattr(connection, 'connect', lambda folder: 1)
  monkeypatch.setattr(
    connection, 'check', lambda deadline: [connection.LiveNode('a', 'b', 1)]
  )
  monkeypatch.setattr(connection, 'check_node', lambda: None)
  monkeypatch.setattr(connection, 'has_process', lambda actor: True)

  def begin(**more):
    ray = Ray(**more)
    monkeypatch.setitem(sys.modules, 'ray', ray)
    return ray_crew.RayCrew(60.0), ray

  return begin
