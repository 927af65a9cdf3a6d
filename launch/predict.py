"""Predicts the classes of photographs, rows or text, and finds similar inputs.

  python -m launch.predict --run_dir=runs/demo photos --top=5 --output=classes.csv
  python -m launch.predict --model=models/demo a.jpg b.jpg
  python -m launch.predict --run_dir=runs/demo a.jpg --neighbors=10 --gallery=photos

Inputs must fit the model:

  images          folders, .tar, .zip or single files
  rows            tables (.csv, .tsv, .jsonl, .parquet) with the columns of the training data, or
                  a .npz with the array x
  sparse text     lines of feature:value, with or without labels and a header
  characters      lines of text, for which the model predicts the next character
  item histories  tables of users and items; the model predicts items that a user does not
                  have yet

The command prints the best classes of each input with their logits. The inputs may have
labels: the names of folders, a column of a table, or labels in sparse text. With labels, the
command also prints how accurate the predictions are. The command does not need the training
data.
"""

from absl import flags

from launch import app, settings
from tasks import own_data
from tff_xc import errors

flags.DEFINE_string('run_dir', None, 'directory of the run that trained the model')
flags.DEFINE_string(
  'model', None, 'folder of a model that launch.export wrote, instead of --run_dir'
)
flags.DEFINE_string(
  'round',
  'chosen',
  'with --run_dir: checkpoint to use. chosen: the best round if the run chose it by a validation or'
  ' client score and without --dp, otherwise the last round; last: the last round; best: the round'
  " with the best score of the run's --best_by; or the number of a round",
)
flags.DEFINE_integer('top', 5, 'number of classes to print for each input', lower_bound=1)
flags.DEFINE_string('output', None, '.csv file to write; default: print a line for each input')
flags.DEFINE_string(
  'label_column',
  None,
  "column of a table that has the true classes; default: the label column of the run's own table,"
  ' if the input has it',
)
flags.DEFINE_enum(
  'corrupt',
  None,
  own_data.CORRUPT.choices,
  'what to do with unreadable images. skip: print their number, and leave their cells in --output'
  ' empty; fail: stop at the first one. Default: skip',
)
flags.DEFINE_integer(
  'neighbors',
  0,
  'number of nearest neighbors in --gallery to find for each input, by the distance of embeddings',
  lower_bound=0,
  upper_bound=10_000,
)
flags.DEFINE_string(
  'gallery', None, 'folder or file with the inputs in which to search for --neighbors'
)
flags.DEFINE_enum(
  'index',
  'exact',
  ('exact', 'hnsw'),
  'how to search for --neighbors. exact: compare all embeddings; hnsw: use an approximate index,'
  ' for millions of inputs. With hnsw, which needs the package faiss-cpu, the command also prints'
  ' the recall of the search',
)
flags.DEFINE_string(
  'picture',
  None,
  '.png, .pdf or .svg file to write, a picture of the first images with their --neighbors',
)
settings.define_named_flags(encoder='network of --run_dir, if it has the form MODULE:FUNCTION')
settings.define_cache_flag()
settings.define_picture_flag()


def main(arguments) -> None:
  values = flags.FLAGS
  if bool(values.run_dir) == bool(values.model):
    raise errors.InputError(
      'give one of --run_dir, the directory of a run, and --model, a folder that'
      ' launch.export wrote'
    )
  if values.model:
    why = 'applies to --run_dir, and not to --model; leave it out'
    settings.refuse(('round', 'encoder'), why)
  if bool(values.neighbors) != bool(values.gallery):
    raise errors.InputError('give --neighbors and --gallery together, or neither of them')
  if not values.neighbors and (values.picture or values['index'].present):
    raise errors.InputError('--picture and --index need --neighbors and --gallery')
  for name, endings in (('output', ('.csv',)), ('picture', ('.png', '.pdf', '.svg'))):
    value = values[name].value
    if value and not value.endswith(endings):
      raise errors.InputError(f'--{name}={value}: expected {" or ".join(endings)}')
  from launch import prediction

  prediction.run(
    arguments,
    run_dir=values.run_dir,
    model=values.model,
    round_wanted=values.round,
    top=values.top,
    output=values.output,
    label_column=values.label_column or '',
    neighbors=values.neighbors,
    gallery=values.gallery,
    index=values['index'].value,
    picture=values.picture,
    corrupt=values.corrupt or '',
    named=settings.named(),
  )


if __name__ == '__main__':
  app.run(main, __doc__)
