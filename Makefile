# The main targets are `make demo` and `make test`; `make help` lists all.

PYTHON_BIN := .venv/bin/python
# The command of `make demo`. Run another command by: make demo DEMO='-m launch.train ...'
DEMO := -m launch.train --task=glyphs-demo --algorithm=fedss --run_dir=runs/demo

.DEFAULT_GOAL := help
.PHONY: help venv venv-gpu venv-cluster demo test test-slow test-all \
  requirements wheel image image-gpu clean reproduce-small documents site notebooks

help:  ## print this list
	@sed -n 's/^\([a-z-]*\):.*## /make \1	/p' $(MAKEFILE_LIST) | expand -t 20

venv:  ## create .venv with the packages of requirements.txt, unless done
	@PYTHON='$(PYTHON)' sh tools/setup_venv.sh

venv-gpu:  ## the same with TensorFlow for CUDA GPUs; `make clean` undoes it
	@PYTHON='$(PYTHON)' REQUIREMENTS=requirements-gpu.txt sh tools/setup_venv.sh

venv-cluster:  ## add Ray to .venv, of either kind, for --runtime=cluster
	@PYTHON='$(PYTHON)' MORE=requirements-cluster.txt sh tools/setup_venv.sh

demo: venv  ## train and evaluate on drawn data, some minutes
	$(PYTHON_BIN) $(DEMO)

# Three processes keep two cores busy, because some tests wait for other processes.
test: venv  ## run the linter, the format check and the quick tests
	$(PYTHON_BIN) -m ruff check
	$(PYTHON_BIN) -m ruff format --check
	$(PYTHON_BIN) -m pytest -n 3 --dist worksteal

test-slow: venv-cluster  ## run the tests that take minutes, with Ray
	$(PYTHON_BIN) -m pytest -n 2 --dist worksteal -m slow

test-all: test test-slow notebooks  ## the same, and tests of the site, notebooks and tools
	PATH="$$PWD/.venv-site/bin:$$PATH" $(PYTHON_BIN) -m pytest -m 'slow or not slow' \
	  tests/test_site.py tests/test_wheel.py tests/test_install.py
	.venv-notebooks/bin/python -m pytest -m slow tests/test_notebooks.py

reproduce-small: venv  ## measure the published tables, small, and write their page
	$(PYTHON_BIN) -m launch.reproduce all --scale=small

documents: venv  ## write the tables of README and docs from docs/results
	$(PYTHON_BIN) -m launch.document README.md $(wildcard docs/*.md)

# Sphinx needs Python 3.11 or newer. It does not need TensorFlow, so it has its own environment.
.venv-site/installed: requirements-site.txt
	$(or $(PYTHON),python3.11) -m venv --clear .venv-site
	.venv-site/bin/python -m pip install --quiet --disable-pip-version-check \
	  --no-deps --require-hashes -r requirements-site.txt
	touch $@

site: .venv-site/installed  ## build the pages and an API reference in build/site
	rm -rf build/site
	.venv-site/bin/python -m sphinx -q -E -W --keep-going \
	  -d build/doctrees docs build/site
	@echo 'Open build/site/index.html in a browser.'

notebooks: .venv-site/installed  ## create .venv-notebooks for them, and say how to open them
	UV_PROJECT_ENVIRONMENT=.venv-notebooks .venv-site/bin/uv sync --quiet --frozen \
	  --extra notebooks
	.venv-notebooks/bin/python -m ipykernel install --prefix=.venv-notebooks >/dev/null
	@echo 'To open the notebooks in JupyterLab, which uv downloads into its cache:'
	@echo '  JUPYTER_PATH=.venv-notebooks/share/jupyter \'
	@echo '    .venv-site/bin/uv tool run --from jupyterlab jupyter-lab notebooks'
	@echo 'In an editor such as VS Code, choose the kernel .venv-notebooks/bin/python.'

requirements: venv  ## resolve pyproject.toml into requirements*.txt and uv.lock again
	sh tools/compile_requirements.sh

# Remove the build folder, because it would put deleted modules into the next wheel. TFF
# pins an old version of `packaging`, which cannot read licences, so use the version that
# setuptools contains.
VENDORED = $(shell $(PYTHON_BIN) -c \
  'import setuptools; print(setuptools.__path__[0])')/_vendor
LEFT = rm -rf build/lib build/bdist.* tff_xc.egg-info
wheel: venv  ## build the library tff_xc as a wheel, in dist/
	$(LEFT)
	PYTHONPATH=$(VENDORED) $(PYTHON_BIN) -m pip \
	  --disable-pip-version-check wheel --no-deps \
	  --no-build-isolation --wheel-dir dist .
	$(LEFT)

image:  ## build a Docker image for CPUs, tff_xc
	docker build --tag tff_xc --build-arg VENV=venv .

image-gpu:  ## the same for CUDA GPUs, tff_xc:gpu
	docker build --tag tff_xc:gpu --build-arg VENV=venv-gpu .

clean:  ## remove .venv and the tools' caches, but not runs/
	rm -rf .venv .venv-site .venv-notebooks .pytest_cache .ruff_cache build dist tff_xc.egg-info
	find . -name __pycache__ -not -path './.git/*' -prune -exec rm -rf {} +
