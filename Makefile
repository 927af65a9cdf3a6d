# What one types: `make demo`, `make test`. `make help` lists the rest.

PYTHON_BIN := .venv/bin/python
# The main job of `make demo`; another one: make demo DEMO='-m launch.train ...'
DEMO := -m launch.train --task=glyphs --algorithm=fedss --run_dir=runs/demo

.DEFAULT_GOAL := help
.PHONY: help venv venv-gpu demo test test-slow requirements clean

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*## /make \1	/p' $(MAKEFILE_LIST) | expand -t 20

venv:  ## create .venv and install what requirements.txt pins, unless done
	@PYTHON='$(PYTHON)' sh tools/setup_venv.sh

venv-gpu:  ## the same with a TensorFlow that uses a CUDA GPU; `make clean` goes back
	@PYTHON='$(PYTHON)' REQUIREMENTS=requirements-gpu.txt sh tools/setup_venv.sh

demo: venv  ## train and evaluate on the embedded data
	$(PYTHON_BIN) $(DEMO)

test: venv  ## lint, format check and the quick tests
	$(PYTHON_BIN) -m ruff check
	$(PYTHON_BIN) -m ruff format --check
	$(PYTHON_BIN) -m pytest -n 2

test-slow: venv  ## the tests that take minutes
	$(PYTHON_BIN) -m pytest -n 2 -m slow

requirements: venv  ## resolve requirements*.in into requirements*.txt anew
	sh tools/compile_requirements.sh

clean:  ## remove .venv and the tools' caches; runs/ stays
	rm -rf .venv .pytest_cache .ruff_cache
	find . -name __pycache__ -not -path './.git/*' -prune -exec rm -rf {} +
