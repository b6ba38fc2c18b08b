PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.installed
CHECKABLE := $(VENV)/.installed-dev
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --editable
SIDE_BY_SIDE := --numprocesses auto --maxprocesses 4

# Setting up compiles no bytecode, so the first import must be free to keep it.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup run test test-slow check clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) .
	touch $@

$(CHECKABLE): $(READY)
	$(INSTALL) '.[dev]'
	touch $@

setup: $(CHECKABLE) ## Make .venv with everything in it (again when pyproject.toml changes)

run: $(READY) ## Set up, then train the default federation and print its results
	$(BIN)/fedsel run

test: setup ## Set up, then run the fast tests side by side: whole runs first, in one process and real ones, then units
	$(BIN)/python -m pytest tests/runs tests -m "not slow" $(SIDE_BY_SIDE) --dist loadfile --no-loadscope-reorder

test-slow: setup ## Set up, then run all tests, real deployments included
	$(BIN)/python -m pytest --hypothesis-profile thorough

check: setup ## The gate: lint, format, types, fast tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(MAKE) test

clean: ## Remove .venv, caches and build output (runs/ stays)
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
