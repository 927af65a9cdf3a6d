"""Lists the algorithms by name. Importing this module does not import TensorFlow."""

from collections.abc import Mapping

from tff_xc import errors, wording
from tff_xc.algorithms import (
  base,
  calibrated,
  fedavg,
  fedaws,
  fedbabu,
  feddyn,
  fedmlh,
  fednova,
  fedproto,
  fedrep,
  fedss,
  fedvc,
  scaffold,
  turbosvm,
)
from tff_xc.options import hyperparameters as hp

ALGORITHMS: Mapping[str, type[base.Base]] = {
  cls.name: cls
  for cls in (
    fedavg.FedAvg,
    fedavg.FedAvgM,
    fedavg.FedAdam,
    fedavg.FedAMS,
    fedavg.FedProx,
    fedavg.MOON,
    feddyn.FedDyn,
    scaffold.SCAFFOLD,
    fednova.FedNova,
    calibrated.FedRS,
    calibrated.FedLC,
    fedbabu.FedBABU,
    fedrep.FedRep,
    fedproto.FedProto,
    fedvc.FedVC,
    fedvc.FedIR,
    fedss.FedSS,
    fedss.NegOnly,
    fedss.PosOnly,
    fedss.FullSoftmax,
    fedaws.FedAwS,
    fedaws.Baseline1,
    fedaws.Baseline2,
    fedaws.FedAwSPosOnly,
    fedaws.FedAwSSoftmax,
    turbosvm.TurboSVM,
    fedmlh.FedMLH,
    fedss.Centralized,
    calibrated.LogitAdjustment,
  )
}
HYPERPARAMETERS: Mapping[str, hp.Hyperparameter] = {
  h.name: h for found in ALGORITHMS.values() for h in found.hyperparameters
}


def get(name: str) -> type[base.Base]:
  """Returns the algorithm with this name. Raises `errors.InputError` for an unknown name."""
  if name not in ALGORITHMS:
    choice = wording.meant(name, ALGORITHMS)
    choice = choice or f'; choose one of {", ".join(ALGORITHMS)}'
    raise errors.InputError(f'unknown algorithm {name!r}{choice}')
  return ALGORITHMS[name]
