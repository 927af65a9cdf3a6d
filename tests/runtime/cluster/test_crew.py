"""What happens to Ray's workers, nodes and errors, with a stand-in for Ray."""

import importlib.util
import pickle
import sys
import types

import pytest

from tff_xc import errors
from tff_xc.runtime import client_error, registry
from tff_xc.runtime.cluster import connection, context, crew as crew_lib, dispatch


class RayError(Exception):
  """Stands for `ray.exceptions.RayError`."""


class RayTaskError(RayError):
  """Stands for `ray.exceptions.RayTaskError`."""

  def __init__(self, cause):
    super().__init__(f'a trace\nof many lines\n{cause}')
    self.cause = cause


class GetTimeoutError(RayError):
  """Stands for `ray.exceptions.GetTimeoutError`."""


class Ray(types.ModuleType):
  """Stands for Ray. A reference to a result is (node, method)."""

  def __init__(self):
    super().__init__('ray')
    self.exceptions = types.SimpleNamespace(
      RayError=RayError, RayTaskError=RayTaskError, GetTimeoutError=GetTimeoutError
    )
    self.answers = {}  # By node and method, or by method.
    self.started, self.devices, self.calls, self.killed = [], [], [], []
    self.stored = None  # The error of storing a value, or None.

  def remote(self, num_cpus, scheduling_strategy, **_):
    node = scheduling_strategy
    self.started.append((node, num_cpus))

    def start(threads, path, device):
      self.devices.append(device)
      return Actor(self, node)

    return lambda cls: types.SimpleNamespace(remote=start)

  def answer(self, ticket):
    node, method = ticket
    if method == 'prepare':
      info = dispatch.Info(1, f'machine {node}', True)
      return info, self.answers.get(node, '')
    return self.answers.get(method)

  def wait(self, tickets, num_returns, timeout):
    return tickets, []

  def get(self, ticket, timeout):
    found = self.answer(ticket)
    if isinstance(found, Exception):
      raise found
    return found

  def put(self, value):
    if self.stored:
      raise self.stored

  def kill(self, actor, no_restart):
    assert no_restart
    self.killed.append(actor.node)


class Actor:
  def __init__(self, ray, node):
    self._ray, self.node = ray, node

  def __getattr__(self, method):
    def remote(*args):
      self._ray.put(args)
      self._ray.calls.append((method, args))
      return self.node, method

    return types.SimpleNamespace(remote=remote)


@pytest.fixture(name='nodes')
def _nodes(monkeypatch):
  """Returns the CPUs of living nodes. The crew checks the nodes without delay."""
  found = {'a': 1}
  monkeypatch.setattr(connection, 'alive', lambda: found)
  monkeypatch.setattr(connection, 'check_node', lambda: None)
  monkeypatch.setattr(crew_lib, '_LOOK_SECONDS', 0.0)
  return found


@pytest.fixture(name='ray')
def _ray(nodes, monkeypatch):
  found = Ray()
  monkeypatch.setitem(sys.modules, 'ray', found)
  strategies = types.SimpleNamespace(NodeAffinitySchedulingStrategy=lambda node, soft: node)
  util = types.SimpleNamespace(scheduling_strategies=strategies)
  monkeypatch.setitem(sys.modules, 'ray.util', util)
  return found


@pytest.mark.parametrize(
  ('threads', 'expected'), [(0, [5, 2]), (1, [1] * 7), (2, [2] * 3), (9, [5, 2])]
)
def test_nodes_have_as_many_workers_as_their_cpus_allow(threads, expected, ray, nodes):
  nodes |= {'a': 5, 'b': 2, 'head': 0}
  crew = crew_lib.RayCrew(threads)
  assert [cpus for _, cpus in ray.started] == expected
  # Workers are added for a new node, and a lost worker is replaced.
  nodes['c'] = 9
  crew.workers()
  crew.dismiss('worker 0')
  crew.workers()
  assert ray.started[-1][0] == 'a' and ray.started[-2][0] == 'c'
  assert ray.killed == ['a']


@pytest.mark.parametrize(
  ('answer', 'error', 'message'),
  [
    (RayError('it died\nthere'), dispatch.LostError, 'it died'),
    # Errors of our own code: bad input, a bug, other data, the end of the machine.
    (errors.InputError('d/x.npz'), client_error.WorkersError, 'd/x.npz'),
    (ValueError('ours'), RayTaskError, 'ours'),
    (client_error.ChangedError('d/x'), client_error.ChangedError, 'd/x'),
    (OSError(28, 'No space'), dispatch.LostError, 'OSError'),
    (MemoryError(), dispatch.LostError, 'MemoryError'),
  ],
)
def test_what_becomes_of_a_workers_error(answer, error, message, ray, monkeypatch):
  crew = crew_lib.RayCrew()
  if not isinstance(answer, RayError):
    answer = RayTaskError(answer)
  ray.answers['train'] = answer
  ticket = crew.call('worker 0', 'train')
  with pytest.raises(error, match=message):
    crew.result(ticket)
  if error is dispatch.LostError and isinstance(answer, RayTaskError):
    return
  # Without a head node, no single worker is lost.
  ray.answers['train'] = GetTimeoutError()
  monkeypatch.setattr(connection, 'alive', _gone)
  with pytest.raises(client_error.WorkersError, match='no head'):
    crew.result(ticket)


def _gone():
  raise client_error.WorkersError('no head')


def test_a_cluster_that_is_gone_is_noticed_by_every_call(ray, monkeypatch):
  crew = crew_lib.RayCrew()
  monkeypatch.setattr(connection, 'check_node', _gone)
  ray.calls.clear()
  for use, given in (
    (crew.share, [1]),
    (crew.call, ['worker 0', 'train']),
    (crew.wait, [[], 1.0]),
    (crew.result, [('a', 'train')]),
  ):
    with pytest.raises(client_error.WorkersError, match='no head'):
      use(*given)
  monkeypatch.setattr(connection, 'alive', _gone)
  for use, given in ((crew.workers, []), (crew.dismiss, ['worker 0'])):
    with pytest.raises(client_error.WorkersError, match='no head'):
      use(*given)
  assert not ray.calls and not ray.killed


def test_a_worker_that_cannot_start_says_why_once(ray, monkeypatch, capsys):
  error = RayError(
    'died because of an error raised in its creation task, x()\n  File "a"\n'
    "ModuleNotFoundError: No module named 'tff_xc'\n"
  )
  monkeypatch.setattr(ray, 'answer', lambda ticket: error)
  crew = crew_lib.RayCrew()
  for _ in range(3):
    assert not crew.workers()
  told = capsys.readouterr().err
  assert told.count("No module named 'tff_xc'") == 1 and told.count('\n') == 2
  assert len(ray.started) > 2  # The crew tries other workers.


def test_workers_open_the_data_of_each_run(ray):
  crew = crew_lib.RayCrew()
  crew.offer_data('first', {})
  assert list(crew.workers()) == ['worker 0']
  ray.answers['a'] = 'finds other data'
  crew.offer_data('second', {})
  with pytest.raises(client_error.WorkersError, match='machine a finds other'):
    crew.workers()
  given = [args[1] for method, args in ray.calls if method == 'prepare']
  assert given[0] == b''
  assert [pickle.loads(g) for g in given[1:]] == [('first', {}), ('second', {})]


def test_a_node_that_joins_with_something_else_is_left_out(ray, nodes, capsys):
  crew = crew_lib.RayCrew(1)
  crew.workers()
  nodes['b'] = 2
  ray.answers['b'] = 'has numpy 0.1'
  for _ in range(4):
    assert list(crew.workers()) == ['worker 0']
  told = capsys.readouterr().err
  assert told.startswith('\na worker on machine b has numpy 0.1')
  assert told.count('\n') == 2  # There is one message for two workers.
  assert len(ray.started) == 3
  # If Ray starts again on the machine, it is another node.
  nodes['c'] = 1
  del nodes['b']
  crew.workers()
  assert list(crew.workers()) == ['worker 0', 'worker 3']


def test_another_program_is_named():
  program = crew_lib.describe_program()
  names = [n for n in program if n == 'numpy' or 'source files' in n]
  assert len(names) == 4
  for name in names:
    found = crew_lib.difference(program, {**program, name: '9'})
    assert f'{name} 9' in found
  assert 'None' in crew_lib.difference(program, {})
  assert not crew_lib.difference(program, dict(program))


def test_a_full_disk_of_the_driver_is_one_sentence(ray):
  crew = crew_lib.RayCrew()
  ray.stored = RayError('Local disk is full\nTip: Use `df`')
  for store, given in ((crew.share, [1]), (crew.call, ['worker 0', 'train'])):
    with pytest.raises(client_error.WorkersError, match='disk is full'):
      store(*given)


def test_a_runtime_of_the_cluster_takes_the_place_of_the_one_before(monkeypatch):
  done = []
  monkeypatch.setattr(connection, 'disconnect', lambda: done.append('left'))
  monkeypatch.setattr(connection, 'connect', lambda *more: done.append(more))
  monkeypatch.setattr(crew_lib, 'RayCrew', lambda *given: done.append(given))
  monkeypatch.setattr(context, 'ClusterContext', lambda *_: None)
  with pytest.raises(errors.InputError, match="TensorFlow sees no 'gpu:7'"):
    registry.install('cluster', device='gpu:7')
  assert not done
  registry._connect(3, 'cpu', 1.0, '10.0.0.1:6379', True)
  assert done == ['left', ('10.0.0.1:6379', True), (3, 'cpu')]


def test_workers_compute_on_the_runs_device(ray):
  crew_lib.RayCrew(1, 'cpu')
  assert {*ray.devices} == {'cpu'}
  ray.get_runtime_context = lambda: types.SimpleNamespace(get_node_id=lambda: 'node')
  ray.util = types.SimpleNamespace(get_node_ip_address=lambda: '10.0.0.2')
  actor = crew_lib._Actor(1, [], 'gpu:7')
  _, wrong = actor.prepare(crew_lib.describe_program(), b'')
  assert "no 'gpu:7'" in wrong


def test_without_ray_the_sentence_names_the_cure(monkeypatch):
  monkeypatch.setattr(importlib.util, 'find_spec', lambda name: None)
  with pytest.raises(errors.InputError, match='make venv-cluster'):
    connection.connect()
