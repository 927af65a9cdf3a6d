"""One round of each method at the sizes of its paper, one case after another.

  python -m launch.benchmark paper_sizes

A case is a whole experiment: its task's encoder, settings and clients. Every
round is a new process, so the cases never share the memory, and the peak of a
case is its own. The process runs two rounds. The time is that of the second
one; the first one, which also traces, and everything before are parts.

  fedss@imagenet21k      FedSS, 21,841 classes of 64, 64 clients of 400 images,
                         800 negatives
  fullsoftmax@landmarks  FedAvg, 2,028 classes of 64, 64 clients of about 130
                         images
  fedaws_kK@amazoncat    FedAwS, 13,330 classes and 203,882 features of 512,
                         4,096 clients of one class; spreadout among K
  fedaws_kK@amazon670k   the same with 670,091 classes and 135,909 features

The images are glyphs, and the encoder is the small conv encoder of 28x28
pixels. It is not the paper's MobileNetV3 of 224x224, which is not here. The
text is procedural (`datasets.procedural.words`), with the numbers of examples
of the sets, and about 74 features in an example. The encoder is the paper's,
512-1024-1024-512.
"""

import dataclasses
import time

from launch.benchmarks import spec

_IMAGES = {
  'fedss@imagenet21k': ('glyphs-imagenet21k', 'fedss'),
  'fullsoftmax@landmarks': ('glyphs-landmarks', 'fullsoftmax'),
}
_TEXT = {'amazoncat': 'amazoncat-13k', 'amazon670k': 'amazon-670k'}
_NEIGHBOURS = (10, 500)
# With these an example has about 74 different words.
_WORDS = {'words_per_example': 100, 'labels_per_example': 5}


@dataclasses.dataclass(frozen=True)
class Settings:
  """Sizes of all cases."""

  # Divides clients, negatives, and the classes, features and dimensions of
  # text; 1: the sizes of the papers.
  shrink: int = 1


def build(contender: str, settings: Settings):
  """Builds a contender, which runs only once, in its own process."""
  from tff_xc.runtime import registry

  registry.install('in_process')  # Before TensorFlow is used.

  def run():
    from tff_xc.round import process as process_lib

    parts, started = {}, time.perf_counter()
    case = experiment(contender, settings)
    process = process_lib.build_process(case.algorithm, 0)
    cohorts = case.algorithm.sampling.cohorts(case.dataset, 0)
    state = process.initialize()
    parts['data and state'] = time.perf_counter() - started
    for number, part in enumerate(('first round', 'second round')):
      started = time.perf_counter()
      # As in `tff_xc.experiment.training`.
      state = registry.donate(state)
      state, metrics = process.next(state, cohorts(number).examples)
      check = {name: float(metrics[name]) for name in ('loss', 'class_rows')}
      parts[part] = time.perf_counter() - started
    return {'seconds': parts['second round'], 'parts': parts, 'check': check}

  return run


def experiment(contender: str, settings: Settings):
  """Returns the `tasks.experiment.Experiment` of a case."""
  from tasks import experiment as experiment_lib

  shrink = settings.shrink

  if contender in _IMAGES:
    task, algorithm = _IMAGES[contender]
    changes = {'clients_per_round': 64 // shrink or 1}
    if algorithm == 'fedss':
      changes['negatives'] = 800 // shrink or 1
    return experiment_lib.assemble(
      experiment_lib.resolve(task, algorithm, changes)
    )
  k, _, name = contender.removeprefix('fedaws_k').partition('@')
  config = experiment_lib.resolve(
    _TEXT[name],
    'fedaws',
    {
      'clients_per_round': 4096 // shrink or 1,
      'embedding_dim': 512 // shrink or 1,
      'feature_dim': 512 // shrink or 1,
      'hidden_dim': 1024 // shrink or 1,
      'spreadout_neighbors': int(k),
      'spreadout_learning_rate': 0.01 / int(k),
    },
  )
  return experiment_lib.with_data(config, _text(config, shrink))


def _text(config, shrink: int):
  """Returns procedural text of the set's size, and the task's model."""
  from datasets.procedural import words
  from datasets.xc import sets
  from tasks import registry as tasks

  counts = sets.SETS[config['task']].counts
  dataset = words.load(
    num_classes=counts.labels // shrink,
    num_features=counts.features // shrink,
    examples_per_class=counts.train / counts.labels,
    test_examples=1,
    **_WORDS,
  )
  return tasks.get(config['task']).with_network(dataset, config['options'])


BENCHMARK = spec.Benchmark(
  name='paper_sizes',
  summary='one round each at the sizes of the papers: seconds and peak memory',
  settings=Settings,
  small={'shrink': 64},
  contenders=lambda settings: [
    *_IMAGES,
    *(f'fedaws_k{k}@{name}' for name in _TEXT for k in _NEIGHBOURS),
  ],
  groups=(),
  tolerances={},
  build=build,
  fresh=True,
  passes=1,
  warm_up=0,
)
