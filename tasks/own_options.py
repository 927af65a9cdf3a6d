"""The options of tasks of one's own data (`tasks.task.OPTIONS` has all)."""

from tff_xc.algorithms import hyperparameters as hp

OPTIONS = (
  hp.Hyperparameter(
    'image_size',
    0,
    "pixels a side of one's own images: the shorter side is scaled to it, and"
    " the middle is cut out; 0: 64, of a .npz its images' shorter side",
    least=0,
    most=4096,
  ),
  hp.Hyperparameter(
    'corrupt',
    'skip',
    "'skip': images that cannot be read are counted and left out; to find them,"
    ' each image is decoded once before the first run that uses it, some 10 ms of'
    ' a core each, so 40 core hours for 14 million images (the cache remembers'
    " them, also if the check is stopped); 'fail': no such check, and the first"
    ' one that is met is an error',
    choices=('skip', 'fail'),
  ),
  hp.Hyperparameter(
    'record_features',
    '',
    'what features of TFRecords are called, image=NAME,class=NAME,user=NAME,id=NAME;'
    " default: usual names, such as TFF's image/encoded_jpeg and class",
  ),
  hp.Hyperparameter(
    'split',
    '',
    'whose each example is: a CSV user_id,image_id,class, or FILE.csv:COLUMN, or'
    ' a folder or zip, as of launch.make_splits; class: a client for each class;'
    ' iid:100: 100 random clients; of CIFAR dirichlet: see --concentration;'
    ' default: as the data say, of sparse text class',
  ),
  hp.Hyperparameter(
    'test_file',
    '',
    'test examples: of images a CSV image_id,class, of a table a second table,'
    ' of sparse text a second file',
  ),
  hp.Hyperparameter(
    'test_fraction',
    0.0,
    'share of the training examples that are held out for the test',
    least=0,
    most=0.5,
  ),
  hp.Hyperparameter('label_column', 'class', "the column of a row's class"),
  hp.Hyperparameter(
    'user_column',
    '',
    "the column of a row's user, where NA is nobody; default: user_id, if any",
  ),
  hp.Hyperparameter(
    'id_column',
    '',
    'the column that --split calls image_id; default: image_id, if any, or the'
    " rows' numbers from 0",
  ),
  hp.Hyperparameter(
    'test_column',
    '',
    'the column that marks test rows by test, true or 1, and others by train,'
    ' false or 0',
  ),
  hp.Hyperparameter(
    'feature_columns',
    '',
    'columns of numbers, with commas between them; default: all other columns'
    ' of numbers',
  ),
  hp.Hyperparameter(
    'standardise',
    True,
    'scale features to mean 0 and deviation 1 over the training rows',
  ),
)
