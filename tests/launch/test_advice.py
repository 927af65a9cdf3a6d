"""Every rule recommends the methods with the highest scores in the stored comparisons."""

import csv

import pytest

from launch import advice


@pytest.mark.parametrize('measured', advice.MEASURED, ids=lambda m: m.name)
def test_recommended_methods_are_among_the_highest(measured):
  """A recommended method is at most two points, or both standard deviations, behind the best."""
  use = advice.rule_for(measured.facts).use
  scores = measured.scores()
  known = [name for name in use if name in scores]
  assert known
  best, spread = max(scores.values())
  for name in known:
    mean, std = scores[name]
    assert best - mean <= max(2.0, spread + std)


def test_every_setting_of_the_page_is_measured():
  """Checks the settings of the page's tables, and that each rule has a setting."""
  rows = csv.DictReader((advice.RESULTS / advice._METHODS).open())
  assert {row['setting'] for row in rows} <= {m.name for m in advice.MEASURED}
  used = {advice.rule_for(m.facts).when for m in advice.MEASURED}
  assert used == {rule.when for rule in advice.RULES}
  for rule in advice.RULES:
    measured = [m.scores() for m in advice.MEASURED if advice.rule_for(m.facts) is rule]
    for name in rule.use:
      assert any(name in scores for scores in measured), (name, rule.when)


def test_a_limit_leaves_out_what_sends_more():
  within = {m.name: m for m in advice.MEASURED}
  free = within['landmarks'].scores()
  limited = within['landmarks within 500 kB a round'].scores()
  assert {'fedproto', 'fedss'} <= limited.keys() < free.keys()
  assert 'fedvc' not in limited and 'centralized' not in free


def test_the_nearest_comparison_counts():
  facts = advice.Facts(1800, 1300, 80, 0.7, 6)
  found = advice.evidence(facts)
  assert found.name == 'landmarks, 1,000 rounds'
  assert facts.distance(found.facts) < advice.NEAR
  assert facts._replace(num_classes=50_000).distance(found.facts) > 20
  # The setting of `found` has no score of fedams.
  assert advice.evidence(facts, 'fedams').name == 'omniglot, 400 rounds'
  assert advice.evidence(facts, 'nobody') is None
  told = found.sentence('fedss')
  assert 'fedss scores 96.3' in told and 'fedadam scores 97.9' in told


def test_a_near_comparison_of_another_rule_counts():
  facts = advice.Facts(2100, 10, 900, 0.7, 28, label_sets=True)
  assert advice.evidence(facts, 'fedmlh').name == 'sparse-words-eurlex-sets'
  facts = facts._replace(classes_per_client=400)
  assert advice.rule_for(facts).use == ('fedmlh',)
  found = advice.evidence(facts, 'fedmlh')
  assert found.name == 'delicious-sets'
  assert facts.distance(found.facts) < advice.NEAR
  # Scores of ranked items are not comparable with scores of label sets.
  assert advice.evidence(facts, 'fedss') is None
