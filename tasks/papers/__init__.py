"""Published tables as data: one file a paper."""
