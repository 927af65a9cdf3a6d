"""Benchmarks of `launch.benchmark`; a module each. Importing them is quick."""
