"""Workers that have another program, or other data, than the driver."""

import pytest

from tests.runtime.cluster import fake_ray
from tff_xc.runtime import client_error
from tff_xc.runtime.cluster import connection
from tff_xc.runtime.cluster import crew
from tff_xc.runtime.cluster import head
from tff_xc.runtime.cluster import ray_crew
from tff_xc.runtime.cluster import same_program


@pytest.fixture(name='begin')
def _begin(monkeypatch):
  return fake_ray.beginning(monkeypatch)


@pytest.mark.parametrize(
  ('what', 'is_whole_program'), [('numpy', False), ('source files', True)]
)
def test_another_version_is_refused(what, is_whole_program, begin):
  program = same_program.describe()
  names = [name for name in program if what in name]
  assert len(names) == (3 if is_whole_program else 1)
  for name in names:
    with pytest.raises(client_error.WorkersError) as error:
      begin(describe=fake_ray.described(**{name: '9'}))
    assert str(error.value) == (
      f'a worker on machine a has {name} 9, and this driver {program[name]}:'
      ' install the same there, and start its workers again'
    )
  with pytest.raises(client_error.WorkersError, match=r'tff_xc.*None'):
    begin(describe=(crew.Info(1, 'here'), {}))  # It knows no checksum.


@pytest.fixture(name='nodes')
def _nodes(begin, monkeypatch):
  """Returns the living nodes, at whose change a crew looks at once."""
  found = [head.LiveNode('a', '', 1)]
  monkeypatch.setattr(connection, 'check', lambda deadline: found)
  monkeypatch.setattr(ray_crew, '_LOOK_SECONDS', 0.0)
  return found


@pytest.mark.parametrize('wrong', ['describe', 'open_data'])
def test_a_worker_that_joins_with_something_else_is_left_out(
  wrong, begin, nodes, capsys
):
  made, ray = begin(reads_data=True, open_data='')
  made.offer_data('data', {})
  made.workers()
  assert list(made.workers()) == ['worker 0']
  nodes.append(head.LiveNode('b', '', 2))
  ray.answers['describe'] = fake_ray.described(True, 'b')
  ray.actors[0].answers['describe'] = fake_ray.described(True)
  if wrong == 'describe':
    ray.answers['describe'] = fake_ray.described(True, 'b', numpy='0.1')
  ray.actors[0].answers['open_data'] = ''
  ray.answers['open_data'] = 'finds other data'
  for _ in range(4):
    assert list(made.workers()) == ['worker 0']
  told = capsys.readouterr().err
  assert told.startswith('\na worker on machine b ')
  assert ('numpy 0.1' in told) == (wrong == 'describe')
  assert told.endswith('; it is left out\n')
  assert told.count('\n') == 2  # Once, of two workers.
  assert len(ray.actors) == 3  # Their units start no others like them.
  # Once its node has ended, its machine may come back with what it needs.
  nodes[1] = head.LiveNode('c', '', 1)
  ray.answers |= {'describe': fake_ray.described(True, 'c'), 'open_data': ''}
  for _ in range(3):
    found = made.workers()
  assert list(found) == ['worker 0', 'worker 3']
  # Also if it was alone for a while, it does not end the run.
  nodes[:] = [head.LiveNode('d', '', 1)]
  ray.answers['describe'] = fake_ray.described(True, 'd', numpy='0.1')
  made.dismiss('worker 0')
  made.dismiss('worker 3')
  for _ in range(3):
    assert not made.workers()
