"""The notebooks run in a Jupyter kernel and print the expected results."""

import importlib.util
import re

import pytest

from tests import documents

FOLDER = documents.ROOT / 'notebooks'
ABSENT = [name for name in ('ipykernel', 'nbclient') if not importlib.util.find_spec(name)]


def outputs_of(cell):
  """Returns the text that a cell printed or displayed."""
  texts = []
  for output in cell.get('outputs', ()):
    assert output['output_type'] != 'error', output['traceback']
    shown = output.get('text') or output.get('data', {}).get('text/plain', '')
    texts += [shown] if isinstance(shown, str) else shown
  return ''.join(texts)


@pytest.mark.slow
@pytest.mark.skipif(bool(ABSENT), reason=f'needs {" and ".join(ABSENT)}, of the extra `notebooks`')
@pytest.mark.parametrize(
  ('name', 'rounds', 'found'),
  [
    # The bytes of a user with FedSS and with the full softmax, for more classes.
    ('fedss', 4, r'\n100,000 +0\.09 +25\.67\n1,000,000 +0\.09 +256\.07'),
    ('your_own_algorithm', 4, r'--smoothing=1\.5: expected[\s\S]*\nmine +\d'),
    # Most test images are predicted correctly, and the exported model returns a class.
    (
      'photographs',
      60,
      r'top1 +(0\.[6-9]|1)[\s\S]* class +score\n0 +(circle|cross|square|triangle) ',
    ),
  ],
)
def test_a_notebook_runs(name, rounds, found, tmp_path, monkeypatch):
  import nbclient
  import nbformat

  for variable in ('TMPDIR', 'IPYTHONDIR', 'JUPYTER_RUNTIME_DIR'):
    folder = tmp_path / variable.lower()
    folder.mkdir()
    monkeypatch.setenv(variable, str(folder))
  notebook = nbformat.read(FOLDER / f'{name}.ipynb', as_version=4)
  [parameters] = [cell for cell in notebook.cells if 'parameters' in cell.metadata.get('tags', ())]
  parameters.source, changed = re.subn(r'^rounds = \d+$', f'rounds = {rounds}', parameters.source)
  assert changed == 1
  client = nbclient.NotebookClient(
    notebook,
    timeout=600,
    kernel_name='python3',
    # Jupyter starts a kernel in this folder.
    resources={'metadata': {'path': str(FOLDER)}},
  )
  client.execute()
  text = '\n'.join(outputs_of(cell) for cell in notebook.cells)
  assert re.search(found, text), text[-3000:]
