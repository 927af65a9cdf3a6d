"""The runtimes of TFF computations; `registry.install` chooses one by name."""
