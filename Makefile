PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.installed
CHECKABLE := $(VENV)/.installed-dev
NEWEST := .venv-newest
LAYERED := $(NEWEST)/.installed
# The last release of Flower whose SuperNodes and SuperLink speak gRPC throughout; docs/flower-versions.md has the others.
FLOWER := flwr[simulation]==1.36.*
OLD := Python 3.11 or newer is needed: make PYTHON=python3.11 ...
PREPARE := $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "$(OLD)")' && $(PYTHON) -m venv $(VENV)
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --editable
FAST := -m "not slow" --numprocesses auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder

# Setting up compiles no bytecode, so the first import must be free to keep it.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup run test test-slow test-newest docs dist check clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# Each mark is a copy of the file that was installed: a newer file with the same content installs nothing.
$(READY): pyproject.toml
	cmp -s pyproject.toml $@ || { $(PREPARE) && $(INSTALL) . '$(FLOWER)'; }
	cp pyproject.toml $@

$(CHECKABLE): pyproject.toml
	cmp -s pyproject.toml $@ || { $(PREPARE) && $(INSTALL) '.[dev]' '$(FLOWER)'; }
	cp pyproject.toml $@
	cp pyproject.toml $(READY)

setup: $(CHECKABLE) ## Make .venv with everything in it (again when pyproject.toml changes)

run: $(READY) ## Set up, then train the default federation and print its results
	$(BIN)/fedsel run

test: setup ## Set up, then run the fast tests side by side: whole runs first, in one process and real ones, then units
	$(BIN)/python -m pytest $(FAST)

test-slow: setup ## Set up, then run all tests, real deployments included
	$(BIN)/python -m pytest --hypothesis-profile thorough

$(LAYERED): $(CHECKABLE)
	$(BIN)/python -m venv $(NEWEST)
	$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' > "$$($(NEWEST)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/first.pth"
	$(NEWEST)/bin/python -m pip install --quiet --disable-pip-version-check --no-compile --upgrade 'flwr[simulation]' setuptools
	$(NEWEST)/bin/python -m pip install --quiet --disable-pip-version-check --no-compile --no-deps --editable .
	touch $@

test-newest: $(LAYERED) ## The fast tests, a simulation and a deployment with the newest Flower, in layers over .venv
	$(NEWEST)/bin/python -m pytest $(FAST)

docs: setup ## Build the documentation site into build/site; it needs no network
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

dist: setup ## Build sdist and wheel into dist/, install the wheel in an empty environment, run and deploy it elsewhere
	rm -rf dist build/lib build/bdist.* build/empty build/elsewhere
	$(BIN)/python -m build --outdir dist .
	$(PYTHON) -m venv build/empty
	build/empty/bin/python -m pip install --quiet --disable-pip-version-check dist/*.whl '$(FLOWER)'
	mkdir -p build/elsewhere/clients build/elsewhere/tests
	touch build/elsewhere/clients/__init__.py build/elsewhere/tests/__init__.py
	cd build/elsewhere && ../empty/bin/fedsel run
	cd build/elsewhere && XDG_CACHE_HOME="$$PWD/cache" ../empty/bin/fedsel deploy --clients 3 --cohort 2 --rounds 2

check: setup ## The gate: lint, format, types, documentation, fast tests, tests of the laboratory
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(MAKE) docs
	$(MAKE) test
	$(BIN)/python -m pytest $(FAST) laboratory/tests

clean: ## Remove .venv, caches and build output (runs/ stays)
	rm -rf $(VENV) $(NEWEST) build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
