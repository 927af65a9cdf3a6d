"""Words of messages. This module imports nothing."""


def count(number: int, what: str) -> str:
  """Returns a number and its noun: `1 class`, `2,000 classes`.

  Args:
    number: 0 or more.
    what: a noun whose plural ends in s, in the singular.
  """
  plural = 'es' if what.endswith('s') else 's'
  return f'{number:,} {what}{"" if number == 1 else plural}'
