"""Encoders for images and items, chosen by --encoder. Imports no TensorFlow."""

import importlib
import os
import traceback
from collections.abc import Mapping

from tff_xc import errors, wording
from tff_xc.lazy import tf
from tff_xc.options import hyperparameters as hp

MIDDLE = 'middle'  # A value of --crop.
OF_ITEMS = BAG, SEQUENCE = 'bag', 'sequence'
SMALL, V2, V3 = 'small', 'mobilenet_v2', 'mobilenet_v3'
# A description of each network, which `launch.list encoders` shows.
ENCODERS: Mapping[str, str] = {
  SMALL: 'four convolutions with 32 filters and GroupNorm, for images of at least 8 x 8'
  ' pixels; trains from scratch',
  V2: 'MobileNetV2 with GroupNorm, 2,223,872 parameters and a linear layer of'
  ' --embedding_dim outputs, for RGB images of at least 32 x 32 pixels (FedVC, FedIR)',
  V3: 'MobileNetV3-Large with GroupNorm, 2,971,952 parameters and a linear layer of'
  ' --embedding_dim outputs, for RGB images of at least 32 x 32 pixels (FedSS)',
  'MODULE:FUNCTION': 'your own network: FUNCTION((height, width, channels)) of an importable'
  ' Python MODULE returns a tf.keras.Model that maps pixels from 0 to 255 to embeddings',
  BAG: 'for items: a weighted mean of the rows of the previous items, and three layers',
  SEQUENCE: 'for items: causal self-attention over the previous items (SASRec). A'
  " training example is a user's history, in which all items except the first are targets",
}
_LEAST_SIDE = {SMALL: 8, V2: 32, V3: 32}

OPTIONS = (
  hp.Hyperparameter(
    'encoder',
    SMALL,
    f'network: {", ".join(ENCODERS)}; `python -m launch.list encoders` describes them',
  ),
  hp.Hyperparameter(
    'encoder_weights',
    '',
    'initial weights of a MobileNet: a .h5 file of tf.keras.applications, or imagenet, which'
    ' Keras downloads. The network has GroupNorm in place of BatchNorm. Default: random weights',
  ),
  hp.Hyperparameter(
    'norm_groups',
    8,
    "number of groups of a MobileNet's GroupNorm: 1, 2, 4 or 8 (8 in TFF's MobileNets). With"
    ' --encoder_weights, 1 is closest to the pretrained network',
    least=1,
    most=8,
  ),
  hp.Hyperparameter(
    'bottleneck',
    True,
    'add a linear layer with --embedding_dim outputs to a MobileNet. false: the features of the'
    ' MobileNet are the embedding (1280 numbers with V2, 960 with V3)',
  ),
  hp.Hyperparameter(
    'crop',
    MIDDLE,
    "part of each training image to use. 'middle': the same part as in tests; 'random': a random"
    ' square of --image_size from an image scaled to 8/7 of this size (FedSS: 224 of 256);'
    " 'scale': a part of random area and aspect ratio, mirrored at random (FedVC). With 'random'"
    " and 'scale', tests use the middle 7/8",
    choices=(MIDDLE, 'random', 'scale'),
  ),
  hp.Hyperparameter(
    'rotate', 0.0, 'rotate training images by up to this many degrees', least=0, most=180
  ),
)


def is_code(encoder: str) -> bool:
  """Whether the value of --encoder names a function of the user."""
  return encoder not in {*_LEAST_SIDE, *OF_ITEMS}


def fit(draft) -> None:
  """Removes options that do not apply to the chosen encoder."""
  options, given = draft.options, draft.given
  name = options['encoder']
  module, colon, function = name.partition(':')
  own = colon and module and function
  if not own and name not in _LEAST_SIDE:
    raise errors.InputError(
      f'--encoder={name}: choose one of {", ".join(_LEAST_SIDE)}, or your own function'
      f' MODULE:FUNCTION{wording.meant(name, _LEAST_SIDE)}'
    )
  is_mobilenet = name in (V2, V3)
  unused = [] if is_mobilenet else ['encoder_weights', 'norm_groups', 'bottleneck']
  if own or (is_mobilenet and not options['bottleneck']):
    unused.append('embedding_dim')
  why = '--bottleneck=false' if is_mobilenet else f'--encoder={name}'
  for option in unused:
    if option != 'bottleneck' or not given.get(option):
      draft.refuse(option, f'with {why}', 'leave one of them out')
    del options[option]
  if options.get('norm_groups', 1) not in (1, 2, 4, 8):
    raise errors.InputError(f'--norm_groups={options["norm_groups"]}: take 1, 2, 4 or 8')
  weights = options.get('encoder_weights')
  if weights and draft.settings.get('start_from'):
    draft.refuse('encoder_weights', 'with --start_from, which has all weights of the network')
  if weights and weights != 'imagenet' and not os.path.isfile(weights):
    raise errors.InputError(
      f'--encoder_weights={weights} is no file; give a .h5 file of'
      ' tf.keras.applications, or imagenet'
    )


def check_side(options: Mapping, side: int, what: str) -> None:
  """Refuses images that are too small for the encoder."""
  least = _LEAST_SIDE.get(options['encoder'], 1)
  if side < least:
    raise errors.InputError(
      f'{what} have {wording.count(side, "pixel")} a side, but --encoder={options["encoder"]} needs'
      f' at least {least}; give --image_size={least} or more'
    )


def stored_side(options: Mapping, side: int) -> int:
  """Returns the side in pixels to store images at so that the encoder sees `side` pixels."""
  return side if _is_whole(options) else -(-side * 8 // 7)


def seen_side(options: Mapping, stored: int) -> int:
  """Returns the side in pixels that the encoder sees of images stored with side `stored`."""
  return stored if _is_whole(options) else stored * 7 // 8


def _is_whole(options: Mapping) -> bool:
  return options.get('crop', MIDDLE) == MIDDLE


def build(options: Mapping, image_shape: tuple[int, ...], filters: int = 32):
  """Returns the `Encoder` of a task's options, which crops stored images as --crop says.

  `filters` is the number of filters of the small encoder.
  """
  rotate = options.get('rotate', 0.0)
  if _is_whole(options) and not rotate:
    return _network(options, image_shape, filters)
  from tff_xc.encoders import crops

  stored, _, *channels = image_shape
  side = seen_side(options, stored)
  network = _network(options, (side, side, *channels), filters)
  return crops.cropped(network, stored, options['crop'], rotate)


def _network(options: Mapping, image_shape: tuple[int, ...], filters: int):
  name = options.get('encoder', SMALL)
  if name == SMALL:
    from tff_xc.encoders import conv

    return conv.build_conv_encoder(
      image_size=image_shape[0],
      channels=image_shape[2] if len(image_shape) == 3 else None,
      filters=filters,
      embedding_dim=options['embedding_dim'],
    )
  if name not in (V2, V3):
    return _of_user(name, image_shape)
  from tff_xc.encoders import keras_weights, mobilenet

  if len(image_shape) != 3 or image_shape[2] != 3:
    raise errors.InputError(
      f'--encoder={name} takes RGB images, but these have the shape'
      f' {list(image_shape)}; give --encoder={SMALL}'
    )
  network = {V2: mobilenet.V2, V3: mobilenet.V3_LARGE}[name]
  groups, weights = options['norm_groups'], options['encoder_weights']
  encoder = mobilenet.build(
    network, image_size=image_shape[0], embedding_dim=options.get('embedding_dim', 0), groups=groups
  )
  if not weights:
    return encoder
  return keras_weights.with_weights(encoder, network, weights, groups)


def _of_user(name: str, image_shape):
  """Returns the network that the user's MODULE:FUNCTION builds."""
  from tff_xc.encoders import keras_model

  def refused(why):
    return errors.InputError(f'--encoder={name}: {why}')

  module_name, _, function_name = name.partition(':')
  try:
    module = importlib.import_module(module_name)
  except ModuleNotFoundError as e:
    raise refused(
      f'no module {e.name!r} can be imported; run the command in the folder of'
      ' MODULE.py, or put it on PYTHONPATH'
    ) from e
  except Exception as e:
    raise refused(f'importing {module_name} fails: {_where(e)}') from e
  function = getattr(module, function_name, None)
  if not callable(function):
    raise refused(f'{module_name} has no function {function_name!r}')
  shape = (*image_shape, 1) if len(image_shape) == 2 else tuple(image_shape)
  # Keras draws initial weights with this seed. A resumed run must draw the same weights.
  tf.keras.utils.set_random_seed(0)
  try:
    model = function(shape)
  except Exception as e:
    raise refused(f'{function_name}({shape}) fails: {_where(e)}') from e
  return keras_model.build_keras_encoder(model, tuple(image_shape), f'--encoder={name}')


def _where(e: Exception) -> str:
  """Describes an exception in one line, with the file and line of code that raised it."""
  frame = traceback.extract_tb(e.__traceback__)[-1]
  text = str(e).partition('\n')[0]
  return f'{type(e).__name__}: {text} ({frame.filename}:{frame.lineno})'
