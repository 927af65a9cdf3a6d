"""`launch.benchmark` from the command line, and the computations of its contenders."""

import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from launch import benchmark as command_lib, document
from launch.benchmarks import svm
from tests.launch import light

ROOT = pathlib.Path(__file__).parents[2]


def call(*arguments):
  return subprocess.run(
    [sys.executable, '-m', 'launch.benchmark', *map(str, arguments)],
    cwd=ROOT,
    capture_output=True,
    text=True,
    timeout=600,
    check=False,
  )


@pytest.mark.parametrize(
  ('arguments', 'message'),
  [
    ((), 'round, classes, select, svm, rank, start'),
    (('rounds',), 'did you mean round?'),
    (('round', '--contenders=plian'), 'plain, in_process'),
    (('round', '--contenders=plain,plain'), 'each once'),
    (('round', '--contenders=plain@5'), 'each once'),
    (('classes', '--contenders=in_process@many'), 'NAME@SIZE'),
    (('classes', '--contenders=in_process@0'), 'NAME@SIZE'),
    (('classes', '--num_classes=200,200'), 'each once'),
    (('select', '--contenders=floor@'), 'each once'),
    (('select', '--num_classes=10'), 'which has --clients'),
    (('round', '--clients=0'), '--clients=0'),
    (('round', '--clients=1,2'), 'a positive number'),
    (('classes', '--num_classes=10,x'), 'several'),
    (('classes', '--num_classes='), '--num_classes='),
    (('round', '--output=/nowhere/x.json'), 'folder'),
    (('select', f'--peers=pfl_torch={sys.executable}'), 'another benchmark'),
    (('round', '--peers=torch=python'), 'pfl_torch, torch_side_by_side'),
    (('round', '--peers=pfl_torch=/nowhere'), '/nowhere'),
  ],
)
def test_bad_input_is_one_sentence_and_status_2(arguments, message):
  light.assert_one_sentence(light.call('benchmark', *arguments), message)


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
  done = call(name, '--small', *more)
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
