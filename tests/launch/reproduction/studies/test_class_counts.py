"""FedVC's class counts by alpha: as derived, in every run of the tests."""

from launch.reproduction import judge
from launch.reproduction import results
from launch.reproduction import studies
from tasks.papers import registry
from tasks.papers import table


def test_the_distances_are_as_derived(tmp_path):
  found = registry.RESULTS['fedvc/fig10']
  module = studies.module(found)
  for scale in table.SCALES:
    config = module.resolve(found.name, scale, None, {})
    assert len(config) == 8
  lines = results.frame(module.measure(config, tmp_path, tmp_path))
  assert judge.judge(found, lines, 'small') == (
    *(judge.Verdict.SHAPE, 'all 8 expected values hold', ()),
  )
  grid, _ = results.Measured(found, 'small', lines).tables()
  assert {row[-1] for row in grid.rows} == {'500'}
  held = [float(row[3]) for row in grid.rows]
  assert held == sorted(held, reverse=True)
  assert held[-1] == 1
  assert (tmp_path / 'result.png').exists()
