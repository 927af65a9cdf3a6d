"""The table, the CSV and the picture of single clients."""

import numpy as np
import pandas as pd

from tff_xc.report import clients, text_table


def _frame():
  scores = np.array([*np.arange(10) / 10, np.nan, 1.0, 0.5])
  return pd.DataFrame(
    {
      'client': [*(f'c{k}' for k in range(11)), '=1+1', 'a\nb'],
      'part': ['trained'] * 11 + ['unseen'] * 2,
      'training_examples': [*range(10, 21), 4, 5],
      'test_examples': [*[2] * 10, 0, 3, 3],
      'classes': [3] * 13,
      'top1': scores,
    }
  )


def test_a_row_for_each_part_and_group():
  heading, *rows = clients.table(_frame())
  assert heading[1:] == ['number', 'mean', 'median', 'p10', 'worst tenth', 'std']
  found = {row[0]: row[1:] for row in rows}
  assert found['trained'][:5] == ['10', '45.0', '45.0', '9.0', '0.0']
  assert found['unseen'][:2] == ['2', '75.0']
  groups = [name for name in found if name.endswith('examples')]
  assert len(groups) == 4
  assert groups[0].startswith('- 12 to ')
  assert sum(int(found[name][0]) for name in groups) == 10
  assert not [name for name in found if 'classes' in name]  # All clients have three classes.


def test_before_and_after_stand_side_by_side_in_a_window():
  frame = _frame()
  frame['top1_personalized'] = frame['top1'] ** 0.5
  rows = clients.table(frame)
  assert rows[0][2:6] == ['mean', 'after', 'median', 'after']
  assert float(rows[1][3]) > float(rows[1][2])
  text = text_table.to_text(rows, width=80)
  assert max(map(len, text.splitlines())) <= 80


def test_files_of_clients(tmp_path):
  clients.write_csv(_frame(), tmp_path / 'clients.csv')
  pd.testing.assert_frame_equal(pd.read_csv(tmp_path / 'clients.csv'), _frame())
  clients.plot(_frame(), tmp_path / 'clients.png', 'glyphs, 9 rounds')
  assert (tmp_path / 'clients.png').stat().st_size > 10_000
