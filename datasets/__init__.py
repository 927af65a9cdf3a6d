"""Reads the files in which owners distribute data sets, and makes federated client data."""

import tff_xc  # noqa: F401 tff_xc selects TensorFlow's kernels, so import it before TensorFlow.
