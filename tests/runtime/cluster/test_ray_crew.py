"""What becomes of Ray's errors, with a stand-in for Ray."""

import sys
import threading
import types

import pytest

from tff_xc import errors
from tff_xc.runtime import client_error
from tff_xc.runtime import registry
from tff_xc.runtime.cluster import connection
from tff_xc.runtime.cluster import context
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


@pytest.fixture(name='begin')
def _begin(monkeypatch):
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


def _call(made, ray, answer):
  [name] = made.workers()
  ray.answers['train'] = answer
  return made.result(made.call(name, 'train'))


def test_more_workers_than_blocks_are_told(begin, monkeypatch, capsys):
  for units in (32, 33):
    monkeypatch.setattr(connection, 'connect', lambda folder, n=units: n)
    begin()
    told = capsys.readouterr().err
    assert told.count('\n') == told.count('33') == (units == 33)


@pytest.mark.parametrize(
  ('answer', 'error', 'message'),
  [
    (RayError('it died\nthere'), dispatch.LostError, 'it died'),
    # Of our own code: bad input, a mistake, other data, the machine's end.
    (errors.InputError('d/x.npz'), client_error.WorkersError, 'd/x.npz'),
    (ValueError('ours'), RayTaskError, 'ours'),
    (client_error.ChangedError('d/x'), client_error.ChangedError, 'd/x'),
    (OSError(28, 'No space'), dispatch.LostError, 'OSError'),
    (MemoryError(), dispatch.LostError, 'MemoryError'),
    (
      RayTaskError(RayError('no object')),
      *(dispatch.LostError, 'RayError'),
    ),
  ],
)
def test_what_becomes_of_a_workers_error(answer, error, message, begin):
  made, ray = begin()
  if not isinstance(answer, RayError):
    answer = RayTaskError(answer)
  with pytest.raises(error, match=message):
    _call(made, ray, answer)


def test_a_lost_worker_is_told_from_a_lost_head(begin, monkeypatch):
  made, ray = begin()

  def gone(deadline):
    raise errors.InputError('no head of a cluster')

  monkeypatch.setattr(connection, 'check', gone)
  with pytest.raises(client_error.WorkersError, match='no head'):
    _call(made, ray, RayError('it died\nthere'))
  # It is noticed without a lost worker, too.
  monkeypatch.setattr(ray_crew, '_LOOK_SECONDS', 0.0)
  with pytest.raises(client_error.WorkersError, match='no head'):
    made.workers()


def test_a_worker_that_cannot_start_says_why(begin, capsys):
  error = RayError(
    'died because of an error raised in its creation task, x()\n  File "a"\n'
    "ModuleNotFoundError: No module named 'tff_xc'\n"
  )
  made, _ = begin(describe=error)
  assert not made.workers()
  told = capsys.readouterr().err
  assert "No module named 'tff_xc'" in told and told.count('\n') == 2


@pytest.fixture(name='clock')
def _clock(monkeypatch):
  """Returns [seconds], the time for a crew."""
  now = [0.0]
  clock = types.SimpleNamespace(monotonic=lambda: now[0])
  monkeypatch.setattr(ray_crew, 'time', clock)
  return now


@pytest.mark.parametrize(
  ('method', 'told'), [('describe', 'start'), ('open_copy', 'open its data')]
)
def test_a_worker_that_hangs_at_its_start_makes_room_for_another(
  method, told, begin, clock, capsys
):
  made, ray = begin(reads_data=True, open_copy='')
  made.offer_data('data', {})
  [first] = made.workers()
  made.dismiss(first)
  answer = ray.answers.pop(method)
  for seconds in (0, 20, 119):
    clock[0] = 20.0 + seconds
    assert not made.workers()
  assert len(ray.killed) == 1
  assert not capsys.readouterr().err
  clock[0] += 2.0
  assert not made.workers()
  assert len(ray.killed) == 2
  error = capsys.readouterr().err
  assert error.startswith(f'\na worker did not {told} within 120 seconds')
  assert '--worker_timeout=60 ' in error
  assert error.count('\n') == 2
  ray.answers[method] = answer
  for _ in range(3):
    clock[0] += 10.0
    found = made.workers()
  assert list(found) == ['worker 2']
  clock[0] += 1000.0
  assert made.workers() == found
  assert not capsys.readouterr().err


def test_a_worker_that_waits_for_a_unit_of_another_run_is_not_late(
  begin, clock, monkeypatch
):
  made, ray = begin()
  [first] = made.workers()
  made.dismiss(first)
  answer = ray.answers.pop('describe')
  placed = []
  monkeypatch.setattr(connection, 'has_process', lambda actor: bool(placed))
  for _ in range(50):
    clock[0] += 10.0
    assert not made.workers()
  placed.append(True)
  for _ in range(11):  # Its time begins only now.
    clock[0] += 10.0
    assert not made.workers()
  ray.answers['describe'] = answer
  assert list(made.workers()) == ['worker 1']


def test_nothing_is_asked_of_ray_once_the_node_has_ended(begin, monkeypatch):
  made, ray = begin()
  [name] = made.workers()

  def ended():
    raise errors.InputError('no node runs here')

  monkeypatch.setattr(connection, 'check_node', ended)
  ray.calls.clear()
  for use in (
    lambda: made.share(1),
    lambda: made.call(name, 'train'),
    lambda: made.wait([], 1.0),
    lambda: made.result((None, 'describe')),
  ):
    with pytest.raises(client_error.WorkersError, match='no node runs here'):
      use()
  assert not ray.calls


def test_a_ray_that_does_not_answer_is_given_up(begin, monkeypatch):
  made, ray = begin()

  def silent(seconds):
    raise errors.InputError(f'no answer within {seconds:g} s')

  monkeypatch.setattr(connection, 'check_answers', silent)
  monkeypatch.setattr(connection, '_LOOK_SECONDS', 0.01)
  end = threading.Event()
  monkeypatch.setattr(ray, 'put', lambda value: end.wait(), raising=False)
  with pytest.raises(client_error.WorkersError, match='no answer within 30 s'):
    made.share(1)
  end.set()


def test_workers_open_the_data_of_each_run(begin):
  made, ray = begin(reads_data=True)
  made.offer_data('first', {})
  assert not made.workers()  # It opens them.
  ray.answers['open_copy'] = ''
  assert len(made.workers()) == 1
  del ray.answers['open_copy']
  made.offer_data('second', {})
  assert not made.workers()
  ray.answers['open_copy'] = 'these are other data'
  with pytest.raises(client_error.WorkersError, match='machine a these are'):
    made.workers()
  opened = [args for method, args in ray.calls if method == 'open_copy']
  assert opened == [('first', {}), ('second', {})]
  # One that is dismissed meanwhile is forgotten.
  made, ray = begin(reads_data=True, open_copy='')
  [name] = made.workers()
  made.offer_data('second', {})
  made.dismiss(name)
  assert not made.workers()


def test_a_runtime_of_the_cluster_takes_the_place_of_the_one_before(
  monkeypatch,
):
  done = []
  monkeypatch.setattr(connection, 'disconnect', lambda: done.append('left'))
  monkeypatch.setattr(
    ray_crew, 'RayCrew', lambda seconds: done.append('connected')
  )
  monkeypatch.setattr(context, 'ClusterContext', lambda *_: None)
  with pytest.raises(errors.InputError, match="TensorFlow sees no 'gpu:7'"):
    registry.install('cluster', device='gpu:7')
  assert not done
  registry._create(registry.CLUSTER, 0, '', 1.0)
  assert done == ['left', 'connected']


def test_a_full_disk_of_the_driver_is_one_sentence(begin):
  made, _ = begin()
  [name] = made.workers()
  full = RayError('Local disk is full\nTip: Use `df`')
  for store in (made.share, lambda value: made.call(name, 'train', value)):
    with pytest.raises(
      client_error.WorkersError, match=r'\(Local disk is full\)'
    ):
      store(full)


def test_another_version_is_refused(begin):
  program = ray_crew.describe_program()
  names = [n for n in program if n == 'numpy' or 'source files' in n]
  assert len(names) == 4
  for name in names:
    with pytest.raises(client_error.WorkersError) as error:
      begin(describe=described(**{name: '9'}))
    assert f'{name} 9' in str(error.value)
  with pytest.raises(client_error.WorkersError, match=r'tff_xc.*None'):
    begin(describe=(dispatch.Info(1, 'here'), {}))  # It knows no checksum.


@pytest.fixture(name='nodes')
def _nodes(begin, monkeypatch):
  """Returns the living nodes, at whose change a crew looks at once."""
  found = [connection.LiveNode('a', '', 1)]
  monkeypatch.setattr(connection, 'check', lambda deadline: found)
  monkeypatch.setattr(ray_crew, '_LOOK_SECONDS', 0.0)
  return found


@pytest.mark.parametrize('wrong', ['describe', 'open_copy'])
def test_a_worker_that_joins_with_something_else_is_left_out(
  wrong, begin, nodes, capsys
):
  made, ray = begin(reads_data=True, open_copy='')
  made.offer_data('data', {})
  made.workers()
  assert list(made.workers()) == ['worker 0']
  nodes.append(connection.LiveNode('b', '', 2))
  ray.answers['describe'] = described(True, 'b')
  ray.actors[0].answers['describe'] = described(True)
  if wrong == 'describe':
    ray.answers['describe'] = described(True, 'b', numpy='0.1')
  ray.actors[0].answers['open_copy'] = ''
  ray.answers['open_copy'] = 'finds other data'
  for _ in range(4):
    assert list(made.workers()) == ['worker 0']
  told = capsys.readouterr().err
  assert told.startswith('\na worker on machine b ')
  assert ('numpy 0.1' in told) == (wrong == 'describe')
  assert told.endswith('; it is left out\n')
  assert told.count('\n') == 2  # Once, of two workers.
  assert len(ray.actors) == 3  # Their units start no others like them.
  # Once its node has ended, its machine may come back with what it needs.
  nodes[1] = connection.LiveNode('c', '', 1)
  ray.answers |= {'describe': described(True, 'c'), 'open_copy': ''}
  for _ in range(3):
    found = made.workers()
  assert list(found) == ['worker 0', 'worker 3']
  # Also if it was alone for a while, it does not end the run.
  nodes[:] = [connection.LiveNode('d', '', 1)]
  ray.answers['describe'] = described(True, 'd', numpy='0.1')
  made.dismiss('worker 0')
  made.dismiss('worker 3')
  for _ in range(3):
    assert not made.workers()
  made.offer_data('of another run', {})
  assert not made.workers()
