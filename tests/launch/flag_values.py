"""The configuration that flags of `launch.train` ask for, in this process."""

from absl import flags

from launch import settings
from launch import train  # noqa: F401  The import defines the flags.


def resolved(arguments):
  """Returns (configuration, run directory) of flags of `launch.train`."""
  flags.FLAGS.unparse_flags()
  flags.FLAGS(['train', *arguments])
  try:
    return settings.resolve(), flags.FLAGS.run_dir
  finally:
    for argument in arguments:
      name = argument.removeprefix('--').partition('=')[0]
      flags.FLAGS[name].unparse()
