"""FedVC's class counts by alpha: as derived, in every run of the tests."""

from launch.reproduction import outcome
from launch.reproduction.studies import study
from tasks.papers import fedvc_skew


def test_the_distances_are_as_derived(tmp_path):
  found = fedvc_skew.FIGURE10
  for scale in outcome.SCALES:
    config = study.resolve(found, scale, None, {})
    assert len(config) == 8
  measured = study.conclude(found, 'small', config, tmp_path)
  assert len(measured.checked) == 8
  assert all(each.holds for each in measured.checked), measured.checked
  assert measured.verdict == outcome.Verdict.SHAPE
  [cells] = measured.tables
  assert {row[-1] for row in cells.rows} == {'500'}
  held = [float(row[3]) for row in cells.rows]
  assert held == sorted(held, reverse=True)
  assert held[-1] == 1
  assert (tmp_path / 'fedvc' / 'fig10' / 'result.png').exists()
