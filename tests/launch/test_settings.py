"""Flags of commands and presets are checked, and take effect, before TensorFlow is imported."""

import re
import sys

import pytest
from absl import flags

from launch import settings
from tasks import registry as tasks
from tests.launch import flag_values, light
from tff_xc import errors
from tff_xc.algorithms import registry as algorithms
from tff_xc.report import run_files


def test_the_cache_folder_may_be_chosen(tmp_path, cache_folder):
  arguments = ('train', '--task=bibtex', '--algorithm=fedaws')
  chosen = light.call(*arguments, f'--cache_dir={tmp_path}')
  assert chosen.stdout.splitlines()[-1] == str(tmp_path), chosen.stderr
  assert light.call(*arguments).stdout.splitlines()[-1] == str(cache_folder)


SMALL = '--task=glyphs --algorithm=fedss'
OWN = 'train --algorithm=fedavg'
# A command line, and a part of the error message, which must come at once.
REFUSED = (
  ('train --algorithm=fedss', '--task is missing: glyphs'),
  ('train --task=glyphs', '--algorithm is missing: fedavg'),
  ('train --task=mnist --algorithm=fedss', "unknown task 'mnist'"),
  ('train --task=glyph --algorithm=fedss', 'did you mean glyphs?'),
  ('train --task=glyphs --algorithm=fedsss', 'did you mean fedss?'),
  ('train --task=glyphs --algorithm=posonly --negatives=5', 'of posonly'),
  (f'{OWN} --task=images --data_dir=. --encoder=mobilnet', 'mean mobilenet_v'),
  ('train --task=bibtex-sets --algorithm=fedaws', 'one label'),
  ('train --task=femnist --algorithm=fedaws', 'cosine'),
  (f'train {SMALL} --lr=1', 'did you mean --client_learning_rate?'),
  (f'train {SMALL} --server_optimizer=adma', 'did you mean adam?'),
  (f'train {SMALL} --picture_format=pdf,jpg', 'png, pdf, svg'),
  (f'train {SMALL} --nonsense=1', 'no flag --nonsense'),
  (f'train {SMALL} --batch_size=many', '--batch_size=many'),
  (f'train {SMALL} --batch_size=3000000000', '=3000000000: expected'),
  (f'train {SMALL} --rounds=0', '--rounds=0'),
  (f'train {SMALL} --seed=-1', '--seed=-1'),
  (f'train {SMALL} --seed=4294967296', '--seed=4294967296'),
  (f'train {SMALL} --client_threads=1000000', '--client_threads=1000000'),
  (f'train {SMALL} --client_learning_rate=nan', 'a finite number'),
  (f'train {SMALL} --local_steps=65536 --batch_size=65536', 'product'),
  (f'train {SMALL} --target=top1=0.7', 'METRIC:VALUE'),
  (f'train {SMALL} --target=map@r:0.7', 'not measured here'),
  (f'train {SMALL} extra', "'extra' is no flag"),
  (f'train {SMALL} --runtime=cloud', 'worker'),
  (f'train {SMALL} --num_classes=20 --negatives=30', 'than the 20 classes'),
  (f'train {SMALL} --task=cifar10 --negatives=10', 'than the 10 classes'),
  (f'train {SMALL} --virtual_clients=64', '--virtual_client_size'),
  # The user's own data.
  (f'{OWN} --task=images', '--data_dir is missing'),
  (f'{OWN} --task=sparse-text', '--data_dir is missing'),
  (f'{OWN} --task=images --data_dir=a --split=iid:0', 'such as --split=iid:100'),
  (f'{OWN} --task=table --data_dir=a --split=no.csv', 'no.csv does not exist'),
  (f'{OWN} --task=images --data_dir=a --image_size=7', 'at least 8'),
  (f'{OWN} --task=images --data_dir=a --corrupt=maybe', 'skip, fail'),
  (f'{OWN} --task=images --data_dir=a --hidden_dim=9', 'not an option of task'),
  (f'{OWN} --task=table --data_dir=a --test_fraction=0.9', 'at most 0.5'),
  (
    f'{OWN} --task=table --data_dir=a --test_fraction=0.1 --test_file=README.md',
    'both name the test',
  ),
  (f'{OWN} --task=sparse-text-sets --data_dir=a --test_file=no', 'not exist'),
  ('compare x --rounds=99999999999', '--rounds=99999999999'),
  (f'compare {"runs" * 100}', 'cannot be opened (File name too long)'),
  ('plan --encoder_parameters=nan', 'a finite number'),
  ('plan --max_megabytes_per_round=1e10', '10000000000.0'),
  ('benchmark round --max_foreign=inf', '--max_foreign=inf'),
  ('benchmark round --clients=-1', 'a positive number'),
  ('benchmark round --passes=0', '--passes=0'),
  ('plan --algorithm=fedsss --num_classes=9', 'did you mean fedss'),
  ('plan --task=mnist', 'unknown task'),
  ('plan --rounds=9', 'give a shape'),
  ('plan --task=images', '--data_dir is missing'),
  ('plan --num_classes=1', '--num_classes=1'),
  ('plan --num_classes=9 --algorithm=posonly --negatives=3', 'negatives'),
  ('plan --task=glyphs --encoder_parameters=9', '--encoder_parameters'),
  ('plan --num_classes=9 --split=nowhere', '--split=nowhere'),
  ('plan stray', 'stray'),
  ('compare', 'no run was named'),
  ('compare absent', 'absent is no run directory'),
  ('compare absent --metric=f1', '--metric=f1'),
  ('compare absent --curves=f1', '--curves=f1'),
  ('compare absent --metric=top1:x', 'METRIC:VALUE'),
  ('compare absent --target=f1:0.5', 'names no metric'),
  ('compare runs --csv=a.csv --rounds=5', '--rounds does not go with --csv'),
  ('benchmark', 'round, classes, select, svm, rank, start'),
  ('benchmark rounds', 'did you mean round?'),
  ('benchmark round --contenders=plian', 'plain, in_process'),
  ('benchmark round --contenders=plain,plain', 'each once'),
  ('benchmark round --contenders=plain@5', 'each once'),
  ('benchmark classes --contenders=in_process@many', 'NAME@SIZE'),
  ('benchmark classes --contenders=in_process@0', 'NAME@SIZE'),
  ('benchmark classes --num_classes=200,200', 'each once'),
  ('benchmark select --contenders=floor@', 'each once'),
  ('benchmark select --num_classes=10', 'which has --clients'),
  ('benchmark round --clients=0', '--clients=0'),
  ('benchmark round --clients=1,2', 'a positive number'),
  ('benchmark classes --num_classes=10,x', 'several'),
  ('benchmark classes --num_classes=', '--num_classes='),
  ('benchmark round --output=/nowhere/x.json', 'folder'),
  (f'benchmark select --peers=pfl_torch={sys.executable}', 'another benchmark'),
  ('benchmark round --peers=torch=python', 'pfl_torch, torch_side_by_side'),
  ('benchmark round --peers=pfl_torch=/nowhere', '/nowhere'),
  ('evaluate --run_dir=r --calibrate_epochs=3', 'goes with --calibrate'),
  ('evaluate --run_dir=r --personalize_part=head', 'goes with --personalize'),
  ('make_splits', 'name one rule, dirichlet, iid'),
  ('make_splits dirichlets', "unknown rule 'dirichlets'"),
  ('make_splits chunks', '--input is missing'),
  ('make_splits chunks --input=a', '--output is missing'),
  ('make_splits chunks --clients=1', '--clients is no setting of chunks'),
  ('make_splits dirichlet --alpha=1', 'did you mean --concentration'),
  ('make_splits dirichlet --concentration=nan', 'a finite number'),
  ('make_splits dirichlet --clients=1.5', "--clients='1.5': expected a whole number"),
  ('make_splits leaf_users --test_fraction=0.1', 'makes the test part itself'),
  ('make_splits chunks --test_fraction=0.1 --test_per_class=1', 'not both'),
  ('make_splits chunks --test_fraction=0.6', 'test_fraction'),
  ('make_splits chunks --inspect=a.csv', 'chunks does not go with --inspect'),
  ('make_splits --inspect=a.csv --seed=1', '--seed does not go with --inspect'),
  ('export --output=m', '--run_dir'),
  ('export --run_dir=r', '--output'),
  ('export --run_dir=r --output=m --format=onx', '--format'),
  ('export --run_dir=r --output=m --quantize=int8', 'tflite'),
  ('export --run_dir=r --output=m --top=0', '--top'),
  ('export --run_dir=r --output=m --top=3 --format=npz', '--top'),
  ('audit --run_dir=a --algorithm=fedss', '--algorithm'),
  ('audit --run_dir=a --rounds=3', '--rounds'),
  ('audit --update_noise=1', '--update_clip'),
  ('audit --task=glyphs --algorithm=fedss --request_epsilon=-1', '--request_epsilon'),
  ('audit --task=glyphs --algorithm=fedavg --request_epsilon=1', '--request_epsilon'),
  ('predict --model=m photos --round=best', '--round'),
  ('predict --model=m photos --encoder=a:b', '--encoder'),
  ('predict --model=m photos --data_dir=.', '--data_dir'),
  ('train --help --algorithm=fedsss', 'fedss'),
  (f'train --help {SMALL} --svm_c=2', '--svm_c'),
  ('document', 'no file was named'),
  ('list', 'name what to list'),
  ('list task', 'name what to list'),
  ('list tasks metrics', 'name what to list'),
)


@pytest.mark.parametrize(('line', 'expected'), REFUSED)
def test_bad_flags_are_one_sentence(line, expected):
  command, *arguments = line.split()
  light.assert_one_sentence(light.call(command, *arguments), expected)


@pytest.mark.parametrize(
  ('line', 'expected'),
  [
    ('sweep', '--task is missing'),
    ('sweep --task=glyphs --algorithm=fedss', '--grid is missing'),
    ('sweep --task=glyphs --algorithm=fedss --grid=negatives:-1,20', '--negatives=-1'),
    ('sweep --task=glyphs --algorithm=fedss --grid=batch_size:4 --seeds=x', '--seeds=x: expected'),
    ('sweep --task=glyphs --algorithm=fedss --grid=batch_size:4 --seed=1', 'no flag --seed'),
    (
      'sweep --task=glyphs --algorithm=fedss --grid=batch_size:4 --metric=p@1',
      'glyphs measures top1',
    ),
    ('sweep --task=glyphs --algorithm=fedss --grid=batch_size:4 --metric=top1:x', 'METRIC:VALUE'),
    ('reproduce', 'name a table or figure'),
    ('reproduce table5', "unknown table 'table5'"),
    ('reproduce fedmlh/table5 --rounds=3', '--rounds: fedmlh/table5 has no use'),
    ('reproduce fedmlh/theory --client_learning_rate=3', '--client_learning_rate: '),
    ('reproduce fedmlh/theory --task=bibtex', '--task=bibtex: fedmlh/theory is of'),
    ('reproduce fedss/table1 --rounds=3', '--rounds: fedss/table1 --scale=small'),
    ('reproduce fedss/table2 --scale=real', '--scale=real'),
    ('reproduce fedss/table1 --needs --finished_only', 'leave one out'),
    ('reproduce fedss/table1 --scale=big', '<small|real|paper>'),
    ('reproduce --scale=paper fedss/table2 --seeds=1,1', '--seeds=1,1: expected'),
    ('reproduce --scale=paper fedss/table2 --seed=1', 'no flag --seed'),
    ('reproduce --scale=paper fedss/table2 --task=omniglot', 'has results on'),
    ('reproduce --scale=paper fedss/table2 --algorithm=moon', 'has, on sop'),
    ('reproduce --scale=paper fedmlh/table3 --validation=2', '--validation=2.0'),
    ('reproduce --scale=paper fedmlh/table3 --negatives=2', 'fedmlh, fedavg'),
  ],
)
def test_bad_flags_of_many_runs_write_nothing(line, expected, tmp_path):
  command, *arguments = line.split()
  output = tmp_path / 'out'
  light.assert_one_sentence(light.call(command, *arguments, f'--output={output}'), expected)
  assert not output.exists()


def test_every_number_of_a_run_has_bounds():
  """Values that overflow int32 or float32, and nan, are errors."""
  bad = {int: (-1, 2**63, 10**30), float: ('nan', 'inf', '-inf', 1e39)}
  for parameter in [*algorithms.HYPERPARAMETERS.values(), *tasks.OPTIONS.values()]:

    def of(found, default, name=parameter.name):
      return next((n for n, names in found.items() if name in names), default)

    algorithm = of({n: a.names for n, a in algorithms.ALGORITHMS.items()}, 'fedavg')
    task = of({n: t.option_values() for n, t in tasks.TASKS.items()}, 'glyphs')
    given = [f'--task={task}', f'--algorithm={algorithm}', '--data_dir=mine']
    for value in bad.get(type(parameter.default), ()):
      flag = f'--{parameter.name}={value}'
      with pytest.raises((flags.Error, errors.InputError)) as refusal:
        flag_values.resolved([*given, flag])
      assert f'--{parameter.name}' in str(refusal.value)
      assert '\n' not in str(refusal.value)


def test_presets_resolve_and_their_heads_tell_the_command():
  for preset in sorted((light.ROOT / 'launch' / 'presets').glob('*.flags')):
    config, _ = flag_values.resolved([f'--flagfile={preset}'])
    text = preset.read_text()
    assert f'--flagfile=launch/presets/{preset.name}' in text
    assert 'python -m launch.train' in text
    found = algorithms.get(config['algorithm'])
    assert not found(**config['hyperparameters']).warnings(10**6, 1)


_FLAG = re.compile(r'^  --(?:\[no\])?(\w+)', re.MULTILINE)


def test_help_shows_the_flags_that_most_runs_need_and_all_on_request():
  few = _FLAG.findall(light.call('train', '--help').stdout)
  needed = {'run_dir', 'task', 'algorithm', *settings.COMMON}
  assert {*few} == needed and len(few) == 15
  whole = light.call('train', '--help=all').stdout
  groups = re.findall(r'^(\S.*):$', whole, re.MULTILINE)
  assert groups == ['flags', *settings._GROUPS]
  assert {*_FLAG.findall(whole)} >= {*settings.parameters()}


def test_help_shows_what_applies_with_its_value():
  told = light.call('train', '--help', *SMALL.split()).stdout
  left = {*_FLAG.findall(told)}
  assert not {'svm_c', 'hashed_features'} & left
  assert {'negatives', 'rounds', 'num_classes', 'seed', 'run_dir'} <= left
  config, _ = flag_values.resolved(SMALL.split())
  known = run_files.flat(config)
  for name in ('negatives', 'num_classes', 'rounds'):
    assert value(told, name) == str(known[name])


def value(told, name):
  [of_flag] = re.findall(rf'^  --{name}:.*?(?=^  --|\Z)', told, re.MULTILINE | re.DOTALL)
  return re.search(r"\(default: '(.*?)'", of_flag)[1]


@pytest.mark.parametrize(
  ('line', 'expected'),
  [
    # A learning rate that depends on another flag, and this flag.
    (
      f'{SMALL} --client_optimizer=adam',
      {'client_optimizer': 'adam', 'client_learning_rate': '0.001'},
    ),
    ('--algorithm=fedss --client_optimizer=adam', {'client_learning_rate': '0.001'}),
    (f'{SMALL} --eval_every=7', {'eval_every': '7', 'checkpoint_every': '7'}),
    ('--task=glyphs --rounds=8', {'checkpoint_every': '10', 'rounds': '8'}),
    # The task's default, limited by the number of classes.
    (f'{SMALL} --task=cifar10', {'negatives': '5'}),
    ('--task=images --algorithm=fedavg', {'image_size': '0'}),
  ],
)
def test_help_tells_values_by_the_other_flags(line, expected):
  told = light.call('train', '--help', *line.split()).stdout
  assert {name: value(told, name) for name in expected} == expected
