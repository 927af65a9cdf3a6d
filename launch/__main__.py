"""Lists the commands: python -m launch."""

import ast
import pathlib


def main() -> None:
  """Prints each command, and the first line of what its `--help` says."""
  for path in sorted(pathlib.Path(__file__).parent.glob('[a-z]*.py')):
    text = ast.get_docstring(ast.parse(path.read_text(encoding='utf-8'))) or ''
    command = f'python -m launch.{path.stem}'
    if command in text:
      print(f'{command:29} {text.partition(chr(10))[0]}')
  print('\nEach describes itself and its flags with --help.')


if __name__ == '__main__':
  main()
