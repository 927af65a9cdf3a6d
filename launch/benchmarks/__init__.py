"""The benchmarks of `launch.benchmark`, one module each. Importing them is quick."""
