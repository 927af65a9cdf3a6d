"""Writes the model of a run as a file that other programs read.

  python -m launch.export --run_dir=runs/demo --output=models/demo

A model takes what a user has: photographs of any size, rows of numbers, sparse text,
characters. It gives the best classes, their scores and the embedding. --output is a
folder: beside the model it has model.json and README.md, which say what inputs and
outputs mean, and classes.csv with the names of classes. The data of the run are not
needed, except by --calibrate; launch.evaluate measures the same model.

  saved_model  for TensorFlow
  tflite       for phones, by TensorFlow Lite; --quantize makes it smaller
  onnx         for other runtimes; needs tf2onnx
  npz          the weights by name, for NumPy
"""

from absl import flags

from launch import app
from launch import settings
from tff_xc import errors

FORMATS = ('saved_model', 'tflite', 'onnx', 'npz')
QUANTIZED = ('float16', 'int8')

flags.DEFINE_string('run_dir', None, 'the directory of a run')
flags.DEFINE_string(
  'output', None, 'the folder to write; it may only hold an earlier export'
)
flags.DEFINE_enum('format', 'saved_model', FORMATS, 'of the model file')
flags.DEFINE_string(
  'round',
  'chosen',
  'the checkpoint: chosen, the best round if the run chose it by validation examples,'
  ' else the last; last; best (by --best_by of the run, else its first score); or a'
  ' round. A run keeps three and the best',
)
flags.DEFINE_integer('top', 5, 'classes that the model returns', lower_bound=1)
flags.DEFINE_enum(
  'quantize',
  None,
  QUANTIZED,
  'of tflite: weights as float16, or as int8 (dynamic range, which needs no examples)',
)
settings.define_named_flags(
  encoder='the network, if it is MODULE:FUNCTION',
  data_dir='where the data of the run are now, with --calibrate',
)
settings.define_calibration_flags('it is written')
settings.define_cache_flag()


def main(arguments) -> None:
  settings.refuse_arguments(arguments)
  values = flags.FLAGS
  for name, what in (
    ('run_dir', 'the directory of a run'),
    ('output', 'the folder to write'),
  ):
    if not values[name].value:
      raise errors.InputError(f'--{name} is missing: {what}')
  if values.quantize and values.format != 'tflite':
    raise errors.InputError(
      f'--quantize={values.quantize} does not apply with --format={values.format},'
      ' only with --format=tflite; leave one of them out'
    )
  if values.format == 'npz' and values['top'].present:
    raise errors.InputError(
      '--top does not apply with --format=npz, which has only weights; leave it out'
    )
  calibrate = settings.calibration()
  settings.use_cache_dir()
  from launch import exporting

  exporting.run(
    values.run_dir,
    values.output,
    values.format,
    round_wanted=values.round,
    top=values.top,
    quantize=values.quantize or '',
    named=settings.named(),
    calibrate=calibrate,
  )


if __name__ == '__main__':
  app.run(main, __doc__)
