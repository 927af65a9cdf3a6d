"""Turns data sets, in the form in which their owners distribute them, into client data."""

import tff_xc  # noqa: F401 It selects TensorFlow's kernels, so it comes before TensorFlow.
