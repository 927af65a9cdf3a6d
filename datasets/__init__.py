"""Converts data sets, in the files that their owners distribute, into federated client data."""

import tff_xc  # noqa: F401 tff_xc selects TensorFlow's kernels, so import it before TensorFlow.
