"""The training loop, its cohorts, and the directory of a run."""
