"""The benchmarks: their contenders, and the measurement of time ratios."""
