"""Resolves the configuration from flags of `launch.train`, in this process."""

from absl import flags
from absl.testing import flagsaver

from launch import (
  settings,
  train,  # noqa: F401  The import defines the flags.
)
from tasks import configuration


@flagsaver.flagsaver
def resolved(arguments):
  """Returns (configuration, run directory) from flags of `launch.train`."""
  flags.FLAGS(['train', *arguments])
  return configuration.resolve(*settings.given()), flags.FLAGS.run_dir
