"""Tables and pictures of what a server can infer from requests and updates."""

from __future__ import annotations

import os
from collections.abc import Mapping

from tff_xc import wording
from tff_xc.lazy import np, pd
from tff_xc.measure import catalog
from tff_xc.report import pictures

# Tables give the number of requests after which the server knows this share of a client's
# own classes.
MOST = 0.9


def of_schedules(requests: pd.DataFrame, scores: pd.DataFrame) -> pd.DataFrame:
  """Returns a row for each schedule of requests, with means over seeds.

  Args:
    requests: columns seed, schedule and requests, and a column for each field of
      `leakage.Told`.
    scores: columns schedule and score, with a row for each run.
  """
  if requests.empty:
    return pd.DataFrame()
  lines = []
  for schedule, found in requests.groupby('schedule', sort=False):
    mean = found.groupby('requests').mean(numeric_only=True)
    first, last = mean.iloc[0], mean.iloc[-1]
    known = mean['known'] >= MOST
    until = known.idxmax() if known.any() else None
    own = scores[scores['schedule'] == schedule]['score'].dropna()
    lines.append(
      {
        'schedule': schedule,
        'seeds': found['seed'].nunique(),
        'requests': mean.index[-1],
        'rounds_between': first['rounds_between'],
        'own_requested': mean.mean().get('own_requested', np.nan),
        'rows': mean.mean().get('rows', np.nan),
        'class_bytes': mean.mean().get('class_bytes', np.nan),
        'auc_first': first['auc'],
        'auc_last': last['auc'],
        'posterior_first': first['posterior'],
        'posterior_last': last['posterior'],
        'known_last': last['known'],
        'requests_until_90': np.nan if until is None else until,
        'precision': (last if until is None else mean.loc[until]).get('precision', np.nan),
        'epsilon_first': first.get('epsilon', np.nan),
        'epsilon_last': last.get('epsilon', np.nan),
        'score': own.mean() if len(own) else np.nan,
        'score_std': own.std() if len(own) > 1 else np.nan,
        'runs': len(own),
      }
    )
  return pd.DataFrame(lines)


def table(audit: pd.DataFrame, metric: str) -> list[list[str]]:
  """Returns the rows of a table as printed text, from the DataFrame of `of_schedules`."""

  def percent(v):
    return '–' if np.isnan(v) else f'{100 * v:.1f}'

  heading = ['negatives', 'own %', 'rows', 'bytes', 'AUC', 'posterior']
  heading += ['90 % after', 'precision', 'ε', metric or 'score']
  rows = [heading]
  for line in audit.to_dict('records'):
    until = line['requests_until_90']
    score = percent(line['score'])
    if not np.isnan(line['score_std']):
      score += f' ± {100 * line["score_std"]:.1f}'
    size = line['class_bytes']
    rows.append(
      [
        line['schedule'],
        percent(line['own_requested']),
        '–' if np.isnan(line['rows']) else f'{line["rows"]:.0f}',
        '–' if np.isnan(size) else wording.human_bytes(size),
        f'{line["auc_first"]:.3f} {line["auc_last"]:.3f}',
        f'{line["posterior_first"]:.2f} {line["posterior_last"]:.2f}',
        f'>{line["requests"]}' if np.isnan(until) else f'{until:.0f}',
        percent(line['precision']),
        '–'
        if np.isnan(line['epsilon_first'])
        else f'{line["epsilon_first"]:.1f} {line["epsilon_last"]:.1f}',
        score,
      ]
    )
  return rows


def table_of_updates(updates: pd.DataFrame) -> list[list[str]]:
  """Returns the rows of a table of AUCs as printed text.

  AUCs are averaged over seeds. The table has a column for each schedule.
  """
  mean = updates.groupby(['schedule', 'seen', 'by'], sort=False)['auc'].mean()
  names = [*updates['schedule'].unique()]
  rows = [['seen', 'by', *names]]
  for key in updates[['seen', 'by']].drop_duplicates().itertuples(index=False):
    of = [mean.get((name, *key), np.nan) for name in names]
    rows.append([*key, *('–' if np.isnan(v) else f'{v:.3f}' for v in of)])
  return rows


def plot(frames: Mapping[str, pd.DataFrame], path: str | os.PathLike, metric: str) -> None:
  """Draws what a server can infer, in up to four panels.

  The panels show posteriors over requests, AUCs over requests, scores of runs over
  posteriors, and AUCs of updates.
  """
  requests, audit, updates = (frames[name] for name in ('requests', 'audit', 'updates'))
  scored = len(audit) and audit['score'].notna().any()
  count = 2 * bool(len(audit)) + 1 + bool(scored)
  figure, axes = pictures.panels(count, count, (4.3 * count, 3.8))
  axes = [*axes]
  if len(audit):
    of_posterior, of_auc, *axes = axes
    names = requests['schedule'].unique()
    styles = dict(zip(names, pictures.styles(), strict=False))
    for name, style in styles.items():
      found = requests[requests['schedule'] == name]
      mean = found.groupby('requests').mean(numeric_only=True)
      for ax, column in ((of_posterior, 'posterior'), (of_auc, 'auc')):
        ax.plot(mean.index, mean[column], **style, markersize=4, label=name)
    x, most = 'requests seen', int(requests['requests'].max())
    for ax in (of_posterior, of_auc):
      if most > 10:
        ax.set_xscale('log')
    pictures.label(of_posterior, 'Posterior of an own class', x, 'posterior probability')
    pictures.label(of_auc, 'Own classes among all', x, 'area under the ROC curve')
    of_posterior.legend(frameon=False, fontsize=9)
    if scored:
      of_score, *axes = axes
      for line in audit.dropna(subset=['score']).to_dict('records'):
        style = styles[line['schedule']]
        of_score.errorbar(
          line['posterior_last'],
          100 * line['score'],
          yerr=100 * np.nan_to_num(line['score_std']),
          color=style['color'],
          marker=style['marker'],
          label=line['schedule'],
          linestyle='',
        )
      last = f'posterior probability after {wording.count(most, "request")}'
      heading = catalog.METRICS[metric].heading
      pictures.label(of_score, 'What it costs', last, f'{heading} %')
      of_score.set_xlim(0, 1.05)
  [of_updates] = axes
  mean = updates.groupby(['seen', 'by'], sort=False)['auc'].mean()
  places = np.arange(len(mean))[::-1]
  style = next(pictures.styles())
  of_updates.barh(places, mean, color=style['color'], height=0.6)
  of_updates.axvline(0.5, color='black', linewidth=1)
  of_updates.set_yticks(places, [f'{what}, {by}' for what, by in mean.index])
  of_updates.set_xlim(0, 1)
  title = 'Updates and losses'
  pictures.label(of_updates, title, 'area under the ROC curve', '', has_grid=False)
  pictures.save(figure, path)
