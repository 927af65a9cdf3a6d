"""Data sets: turns files as their owners distribute them into client data."""

import tff_xc  # noqa: F401 before TensorFlow, whose kernels it chooses
