"""Trains an algorithm on a data set, in the directory of a run."""

import dataclasses
import os
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from tff_xc.data import client_data
from tff_xc.data import fingerprint
from tff_xc.experiment import client_states
from tff_xc.experiment import environment
from tff_xc.experiment import loop
from tff_xc.experiment import run_directory
from tff_xc.measure import communication
from tff_xc.measure import evaluation
from tff_xc.round import algorithm as algorithm_lib
from tff_xc.round import process


def train(
  algorithm: algorithm_lib.Algorithm,
  dataset: client_data.FederatedDataset,
  run_dir: str | os.PathLike,
  *,
  metrics: Sequence[str],
  rounds: int,
  eval_every: int = 10,
  checkpoint_every: int = 0,
  seed: int = 0,
  config: Mapping[str, Any] | None = None,
  warnings: Sequence[str] = (),
) -> dict[str, Any]:
  """Trains, evaluates and writes everything about the run, or resumes it.

  Install a runtime first (`tff_xc.runtime.registry.install`).

  Args:
    algorithm: with its `sampling`.
    dataset: the clients and the held-out examples.
    run_dir: the directory of the run. The same call resumes a run that stopped.
    metrics: names in `measure.catalog.SCORES`, the headline metric first.
    rounds: rounds of the whole run.
    eval_every: rounds between evaluations.
    checkpoint_every: rounds between checkpoints; 0: `eval_every`.
    seed: of the initial weights and all random draws.
    config: further settings for config.json. A run is resumed only with the
      same settings and the same data.
    warnings: about the settings; printed, and kept in the summary.

  Returns:
    The summary, as in summary.json, with nan in place of null.

  Raises:
    errors.InputError: `run_dir` holds another run or other data; a client
      fails; or no client's update is finite any more.
    ValueError: the algorithm has no sampling.
  """
  if algorithm.sampling is None:
    raise ValueError(
      'the algorithm has no sampling: who takes part in a round?'
    )
  schedule = loop.Schedule(rounds, eval_every, checkpoint_every or eval_every)
  config = _whole_config(config or {}, dataset, seed, schedule)
  run_directory.check_config(run_dir, config)
  kept = algorithm.client_state
  return loop.run(
    process=process.build_process(algorithm, seed),
    cohorts=algorithm.sampling.cohorts(dataset, seed),
    evaluate=evaluation.Evaluator(algorithm.model, dataset, metrics),
    metrics=tuple(metrics),
    messages=communication.messages(algorithm),
    schedule=schedule,
    directory=run_directory.RunDirectory(run_dir, config),
    warnings=warnings,
    client_states=kept and client_states.ClientStates(kept.spec),
  )


def _whole_config(config, dataset, seed, schedule) -> dict[str, Any]:
  """Returns what config.json records."""
  return {
    'task': dataset.name,
    'algorithm': 'own',
    **environment.describe(),
    **config,
    'seed': seed,
    **dataclasses.asdict(schedule),
    'data': fingerprint.fingerprint(dataset),
  }
