"""`launch.make_splits`: folders that it may write, and those that it may not."""

import pytest

from datasets.splits import output as output_lib
from datasets.splits import rules
from launch import make_splits
from tests.datasets.sop import on_disk as sop_files
from tests.launch import split_inputs
from tff_xc import errors


@pytest.fixture(autouse=True)
def _no_pictures(monkeypatch):
  monkeypatch.setattr(output_lib, '_draw', lambda folder, made: None)


def make(source, output, rule='chunks'):
  request = rules.Request(rule, {'examples_per_client': 7})
  columns = {'label': 'class', 'user': None, 'id': None}
  return make_splits.make(request, str(source), columns, str(output))


def test_a_link_is_followed_and_the_folder_at_hand_is_refused(
  tmp_path, monkeypatch
):
  source = split_inputs.as_csv(tmp_path)
  (tmp_path / 'there').mkdir()
  (tmp_path / 'link').symlink_to('there')
  make(source, tmp_path / 'link')
  assert (tmp_path / 'link').is_symlink()
  assert {p.name for p in (tmp_path / 'there').iterdir()} >= {'classes.csv'}
  (tmp_path / 'here').mkdir()
  monkeypatch.chdir(tmp_path / 'here')
  for output in ('.', tmp_path / 'here'):
    with pytest.raises(errors.InputError, match='folder that the command runs'):
      make(source, output)


def test_a_splits_pictures_do_not_join_its_images(tmp_path):
  source = split_inputs.as_images(tmp_path)
  for output in (
    source / 'new' / 'split',
    tmp_path / 'a' / '..' / 'images/c0/s',
  ):
    with pytest.raises(errors.InputError, match=r'lies in --input=.*images,'):
      make(source, output)
  assert not (source / 'new').exists()
  make(split_inputs.as_xc(tmp_path), tmp_path / 'images' / 'text')


def test_a_split_may_lie_beside_the_lists_that_it_is_made_of(tmp_path):
  source = sop_files.write(tmp_path, *sop_files.lists())
  make(source, source / 'sop', 'sop')
  assert (source / 'sop' / 'retrieval.csv').exists()
