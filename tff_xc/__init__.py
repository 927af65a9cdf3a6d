"""Federated extreme classification on TensorFlow Federated.

Importing this package imports nothing else; its modules import TensorFlow and
TFF. It switches on TensorFlow's oneDNN kernels, unless the environment says
otherwise. TensorFlow itself uses them only on processors that have AVX-512 VNNI
or the like, and training takes up to 2.5 times as long without them.
"""

import os

ONEDNN = 'TF_ENABLE_ONEDNN_OPTS'  # TensorFlow reads it when it is imported.
# What the user has set, or None.
ONEDNN_GIVEN = os.environ.get(ONEDNN)
os.environ.setdefault(ONEDNN, '1')
