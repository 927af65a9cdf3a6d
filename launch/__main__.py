"""Lists the commands: python -m launch."""

import ast
import pathlib


def main() -> None:
  """Prints each command with the first line of its `--help`."""
  for path in sorted(pathlib.Path(__file__).parent.glob('[a-z]*.py')):
    text = ast.get_docstring(ast.parse(path.read_text(encoding='utf-8'))) or ''
    command = f'python -m launch.{path.stem}'
    if command in text:
      print(f'{command:29} {text.partition(chr(10))[0]}')
  print('\nWith --help, each command describes itself and its flags.')


if __name__ == '__main__':
  main()
