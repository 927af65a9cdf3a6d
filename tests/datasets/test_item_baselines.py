"""Recommendations by counts, compared with loops over users."""

import collections

import numpy as np
import pytest

from datasets import item_baselines, items
from datasets.procedural import purchases


def by_loops(rows, tested, n, leave_out_seen):
  """Returns the scores of each method. `rows` has the training items of each user in order."""
  taken = collections.Counter(item for own in rows for item in own)
  following, near = collections.Counter(), collections.Counter()
  for own in rows:
    for place, a in enumerate(own):
      for k, b in enumerate(own[place + 1 : place + 6], 1):
        near[a, b] += 1 / k
        following[a, b] += k == 1
  scores = collections.defaultdict(list)
  for before, label in tested:
    newest = before[::-1][:10]
    score = collections.Counter()
    for rank, a in enumerate(newest, 1):
      for b in range(n):
        score[b] += near[a, b] / ((taken[b] ** 0.5 + 5) * rank)
    last = before[-1]
    keys = {
      'popularity': [(-taken[b], b) for b in range(n)],
      'markov': [(-following[last, b], -taken[b], b) for b in range(n)],
      'cooccurrence': [(-round(score[b], 9), b) for b in range(n)],
    }
    for name, key in keys.items():
      best = [
        b for b in sorted(range(n), key=key.__getitem__) if not (leave_out_seen and b in before)
      ]
      rank = best.index(label)
      scores[name].append((rank < 10, (rank < 10) / np.log2(rank + 2)))
  return {
    name: dict(zip(('hit@10', 'ndcg@10'), map(float, np.mean(found, 0)), strict=True))
    for name, found in scores.items()
  }


@pytest.mark.parametrize('leave_out_seen', [True, False])
def test_lists_by_counts_are_those_of_loops(leave_out_seen, monkeypatch):
  drawn = purchases.draw(purchases.Options(60, 50, 12))
  random = np.random.default_rng(1)
  if not leave_out_seen:  # Some items occur again.
    again = drawn.items.copy()
    again[1:][random.random(len(again) - 1) < 0.3] = 7
    drawn = drawn._replace(items=again)
  options = items.Options(leave_out_seen=leave_out_seen)
  rows, tested = [], []
  for user in range(60):
    own = drawn.items[drawn.users == user].tolist()
    tested.append((own[:-1], own[-1]))
    rows.append(own[: -2 if len(own) > 3 else -1])
  wanted = by_loops(rows, tested, 50, leave_out_seen)
  found = items.baselines(drawn, options)
  assert found.keys() == wanted.keys()
  for name, scores in wanted.items():
    assert found[name] == pytest.approx(scores), name
  assert len({scores['ndcg@10'] for scores in found.values()}) == 3
  monkeypatch.setattr(item_baselines, '_AT_ONCE', 1)
  for name, scores in items.baselines(drawn, options).items():
    assert scores == pytest.approx(found[name])
