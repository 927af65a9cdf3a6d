"""Configurations: what a task, an algorithm and changes give together."""

import pytest

from tasks import experiment
from tff_xc import errors


@pytest.mark.parametrize(
  ('algorithm', 'changes', 'selects'),
  [
    ('moon', {}, False),
    ('fedss', {'contrastive_weight': 1.0}, False),
    ('moon', {'moon_published': True}, True),
    ('fedss', {}, True),
    ('fedss', {'select_features': False}, False),
  ],
)
def test_clients_that_keep_their_model_hold_all_of_it(
  algorithm, changes, selects
):
  config = experiment.resolve('bibtex', algorithm, changes)
  assert config['options']['select_features'] is selects


def test_selected_features_do_not_go_with_kept_models():
  with pytest.raises(
    errors.InputError, match='keep whole models; leave it out'
  ):
    experiment.resolve('bibtex', 'moon', {'select_features': True})


def test_without_validation_examples_no_round_is_chosen_by_them():
  resolve = lambda **changes: experiment.resolve(
    'bibtex-sets', 'fedmlh', {'validation': 0.0, **changes}
  )
  assert experiment.resolve('bibtex-sets', 'fedmlh')['best_by'] == (
    'pc_mean_validation'
  )
  assert resolve()['best_by'] == ''
  assert resolve(best_by='pc_mean', stop_after=3)['best_by'] == 'pc_mean'
  for changes in ({'best_by': 'pc_mean_validation'}, {'stop_after': 3}):
    with pytest.raises(
      errors.InputError, match='--validation=0 holds none out'
    ):
      resolve(**changes)
