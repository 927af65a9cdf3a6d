"""Names of files and folders that computers leave beside data.

Every reader that lists a folder or an archive passes over them: hidden ones (`._*`
of macOS, `.ipynb_checkpoints`, `.Trash-1000`, `.git`), thumbnails, and what file
systems and file servers keep for themselves.
"""

import re

_NEVER = re.compile(
  r'(^|/)(\.|(__MACOSX|Thumbs\.db|ehthumbs\.db|desktop\.ini|@eaDir|@tmp'
  r'|#recycle|#snapshot|\$RECYCLE\.BIN|RECYCLER|System Volume Information'
  r'|lost\+found)(/|$))',
  re.IGNORECASE,
)


def is_data(path: str) -> bool:
  """Whether a path, with `/` between its parts and without `./`, may be data."""
  return not _NEVER.search(path)
