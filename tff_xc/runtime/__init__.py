"""The runtimes that run TFF computations. `registry.install` installs a runtime by its name."""
