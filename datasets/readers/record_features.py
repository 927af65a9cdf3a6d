"""The names of features in TFRecords. The module imports nothing large."""

from collections.abc import Mapping

from tff_xc import errors

# The usual names of each feature. The reader uses the first name that an example has.
KNOWN = {
  'image': ('image/encoded_jpeg', 'image/encoded', 'image', 'image_raw'),
  'class': ('class', 'image/class/label', 'label'),
  'user': ('user_id', 'user', 'client_id'),
  'id': ('image/filename', 'image_id', 'image/id', 'id', 'filename'),
}
# The feature names that the user gives. All other features have one of the usual names.
Features = Mapping[str, str]
USUAL: Features = {}


def parse(text: str) -> Features:
  """Parses `image=NAME,class=NAME,user=NAME,id=NAME`; each of these is optional."""
  given = {}
  for part in filter(None, text.split(',')):
    kind, _, name = part.strip().partition('=')
    if kind not in KNOWN or not name or kind in given:
      raise errors.InputError(
        f'--record_features={text}: expected image=NAME, class=NAME, user=NAME and'
        ' id=NAME with commas between them, such as'
        ' --record_features=image=image/encoded,class=image/class/label'
      )
    given[kind] = name
  return given
