"""Federated extreme classification on TensorFlow Federated.

Importing this package costs nothing; its modules import TensorFlow and TFF.
"""
