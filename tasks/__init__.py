"""Experiments: data, encoder, head, hyper-parameters, published numbers."""
