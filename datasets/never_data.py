"""Names of files and folders that computers leave beside data.

Every reader that lists a folder or an archive passes over them: hidden ones (`._*`
of macOS, `.ipynb_checkpoints`, `.Trash-1000`, `.git`), thumbnails, and what file
systems and file servers keep for themselves.
"""

import re

_NEVER = re.compile(
  r'(^|/)(\.|(__MACOSX|(?i:(eh)?thumbs\.db|desktop\.ini)|@eaDir|@tmp|@Recycle'
  r'|@Recently-Snapshot|#recycle|#snapshot|~snapshot|\$RECYCLE\.BIN|RECYCLE[DR]'
  r'|FOUND\.\d{3}|System Volume Information|Network Trash Folder|Temporary Items'
  r'|lost\+found)(/|$))'
)


def is_data(path: str) -> bool:
  """Whether a path, with `/` between its parts and without `./`, may be data."""
  return not _NEVER.search(path)
