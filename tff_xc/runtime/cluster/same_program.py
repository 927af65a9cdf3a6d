"""Whether a worker has the program of its driver."""

from tff_xc import environment


def describe() -> dict:
  """Returns what a worker's numbers depend on, by what it is called."""
  return {
    **{
      f'source files of {name} with the checksum': checksum
      for name, checksum in environment.sources().items()
    },
    **environment.describe()['versions'],
  }


def difference(here: dict, there: dict) -> str:
  """Returns how a worker's program differs from this driver's, or ''."""
  for name in {**here, **there}:
    if here.get(name) != there.get(name):
      return (
        f'has {name} {there.get(name)}, and this driver {here.get(name)}: install'
        ' the same there, and start its workers again'
      )
  return ''
