"""`launch.benchmark` from the command line, and the computations of its contenders."""

import json

import numpy as np
import pytest

from launch import benchmark as command_lib, document
from launch.benchmarks import svm
from tests import processes
from tests.launch import light


@pytest.mark.slow
@pytest.mark.parametrize('name', command_lib.BENCHMARKS)
def test_contenders_agree_and_are_read_back(tmp_path, name):
  """Exit status 1 would mean that a contender computes something else."""
  output, page = tmp_path / 'a.json', tmp_path / 'a.md'
  more = ['--passes=1', '--max_foreign=100', f'--output={output}']
  if name == 'round':  # With one batch, the order of the examples has no effect.
    more += ['--examples=8', '--batch_size=8']
  if name == 'classes':
    more += ['--num_classes=200', '--contenders=in_process,worker,dp']
  done = processes.python(
    '-m', 'launch.benchmark', name, '--small', *more, cwd=light.ROOT, timeout=600
  )
  assert (done.returncode, done.stderr) == (0, '')
  found = json.loads(output.read_text())
  assert found['passes'] == 1 and found['versions'] and found['machine']['cpu']
  assert found['command'].startswith(f'launch.benchmark {name} --')
  assert str(tmp_path) not in found['command']
  for peak in found['peak_mb'].values():
    assert 20 < peak < 5000
  page.write_text('<!-- benchmark a.json -->\n<!-- end -->\n')
  shown = document.document(page).split('-->')[1].removesuffix('<!-- end ')
  assert shown in done.stdout
  if name == 'round':
    norms = [each['update_norm'] for each in found['check'].values()]
    assert norms == pytest.approx(len(norms) * [norms[0]], rel=1e-3)
  if name == 'start':
    parts = found['parts']['worker']
    assert found['median_seconds']['worker'] == pytest.approx(
      sum(parts.values()) - parts['second round']
    )


def test_the_closed_form_of_the_spread_out_is_the_gradient():
  random = np.random.default_rng(2)
  rows, normals = random.normal(size=[4, 3]), random.normal(size=[6, 3])
  loss, gradient = svm.similarities(rows, normals)
  wanted = 0.0
  pairs = [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]
  for (a, b), normal in zip(pairs, normals, strict=True):
    along = (rows[a] - rows[b]) @ normal / np.linalg.norm(normal)
    wanted += np.exp(-0.5 * along**2)
  assert loss == pytest.approx(wanted)
  for place in np.ndindex(*rows.shape):
    step = np.zeros_like(rows)
    step[place] = 1e-5
    forth, _ = svm.similarities(rows + step, normals)
    back, _ = svm.similarities(rows - step, normals)
    assert gradient[place] == pytest.approx((forth - back) / 2e-5, abs=1e-8)
