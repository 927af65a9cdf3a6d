"""Where TFF computations run; `registry.install` chooses by name."""
