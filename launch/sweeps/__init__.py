"""Sweeps: a loop over experiments. Nothing here imports TensorFlow."""
