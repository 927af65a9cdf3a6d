"""The benchmarks: what each compares, and how a ratio is measured."""
