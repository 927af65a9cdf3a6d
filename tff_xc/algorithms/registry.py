"""The algorithms by name. Importing this does not import TensorFlow."""

from collections.abc import Mapping

from tff_xc import errors
from tff_xc import wording
from tff_xc.algorithms import centralized
from tff_xc.algorithms import entry
from tff_xc.algorithms import fedadam
from tff_xc.algorithms import fedams
from tff_xc.algorithms import fedavg
from tff_xc.algorithms import fedavgm
from tff_xc.algorithms import fedaws
from tff_xc.algorithms import fedaws_baseline1
from tff_xc.algorithms import fedaws_baseline2
from tff_xc.algorithms import fedaws_posonly
from tff_xc.algorithms import fedaws_softmax
from tff_xc.algorithms import fedir
from tff_xc.algorithms import fedmlh
from tff_xc.algorithms import fedprox
from tff_xc.algorithms import fedss
from tff_xc.algorithms import fedvc
from tff_xc.algorithms import fullsoftmax
from tff_xc.algorithms import hyperparameters as hp
from tff_xc.algorithms import moon
from tff_xc.algorithms import negonly
from tff_xc.algorithms import posonly
from tff_xc.algorithms import turbosvm

_MODULES = (
  fedavg,
  fedavgm,
  fedadam,
  fedams,
  fedprox,
  moon,
  fedvc,
  fedir,
  fedss,
  negonly,
  posonly,
  fullsoftmax,
  fedaws,
  fedaws_baseline1,
  fedaws_baseline2,
  fedaws_posonly,
  fedaws_softmax,
  turbosvm,
  fedmlh,
  centralized,
)
ALGORITHMS: Mapping[str, entry.Entry] = {
  module.ENTRY.name: module.ENTRY for module in _MODULES
}
HYPERPARAMETERS: Mapping[str, hp.Hyperparameter] = {
  h.name: h for found in ALGORITHMS.values() for h in found.hyperparameters
}


def get(name: str) -> entry.Entry:
  """Returns the algorithm; raises `errors.InputError` for an unknown name."""
  if name not in ALGORITHMS:
    raise errors.InputError(
      f'unknown algorithm {name!r}{wording.meant(name, ALGORITHMS)}; choose one'
      ' of ' + ', '.join(ALGORITHMS)
    )
  return ALGORITHMS[name]
