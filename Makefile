# Everything a person needs, on a machine with Python 3.11 or later, pip and make.
# `make help` lists the targets. Another Python: make PYTHON=python3.13 demo

PYTHON ?= python3
VENV ?= .venv
JOBS ?= $(shell $(PYTHON) -c "import os; print(min(4, os.cpu_count() or 1))")
BIN := $(VENV)/bin
PY := $(BIN)/python
INSTALLED := $(VENV)/installed
DEVELOPED := $(VENV)/installed-dev
# What hypothesis draws and the order of tests follow from the commit, so that a red run repeats.
SEED ?= $(shell git rev-parse --short=8 HEAD 2>/dev/null | $(PYTHON) -c "print(int(input() or '0', 16))" 2>/dev/null || echo 0)
PYTEST := $(PY) -m pytest -n $(JOBS) --dist loadgroup -p randomly --randomly-seed=$(SEED) --hypothesis-seed=$(SEED)
EXAMPLE ?= examples/first.yaml
# Tests start hundreds of processes; without cached bytecode each would compile 400 modules again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo test check test-interpreted test-compiled test-kubernetes apiserver compile bench docs format clean

help:  ## list what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(DEVELOPED)  ## make .venv and install the package and its tools there

# The package is installed editable and uncompiled: `make compile` builds beside the sources. That
# needs no compiler and nothing but setuptools, so building apart from the environment would only cost.
define install
@$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11))" 2>/dev/null || { \
  echo "Windtunnel needs Python 3.11 or later, and $(PYTHON) is not that; make PYTHON=... names another."; exit 1; }
@echo "== set-up: installing $(1) into $(VENV) (a minute or two the first time)"
@test -x $(PY) || $(PYTHON) -m venv $(VENV) >/dev/null 2>&1 || $(PYTHON) -m venv --without-pip --clear $(VENV)
@pip="$(PY) -m pip"; $$pip --version >/dev/null 2>&1 || pip="$(PYTHON) -m pip --python $(PY)"; \
  pip="$$pip -qq --disable-pip-version-check"; \
  $$pip install "setuptools>=77" && WINDTUNNEL_COMPILE=0 $$pip install --no-build-isolation -e "$(2)"
endef

$(INSTALLED): pyproject.toml
	$(call install,the package,.)
	@touch $@

$(DEVELOPED): pyproject.toml
	$(call install,the package and its tools,.[dev])
	@touch $(INSTALLED) $@

demo: $(INSTALLED)  ## simulate a small fleet and show the result
	@echo "== windtunnel simulate $(EXAMPLE)"
	@$(BIN)/windtunnel simulate $(EXAMPLE)

# Types and compiling keep one core busy each, so they go on beside the tests that do not need them.
test: $(DEVELOPED)  ## every check, and every test in both forms
	@$(MAKE) --no-print-directory -j3 check test-interpreted compile
	@$(MAKE) --no-print-directory test-compiled
	@echo "== all is well"

check: $(DEVELOPED)  ## style, types and import rules
	@echo "== ruff"
	@$(BIN)/ruff check -q . && $(BIN)/ruff format -q --check . || { echo "make format mends most of that"; exit 1; }
	@echo "== mypy"
	@$(BIN)/mypy --no-error-summary
	@echo "== import rules"
	@$(BIN)/lint-imports >$(VENV)/lint-imports.log || { cat $(VENV)/lint-imports.log; exit 1; }

# Some tests watch real processes in real time, beside a build that holds the cores. What failed gets
# one more try, alone, and is named; draws and order are the same.
define tested
{ $(PYTEST) $(1) || { echo "== once more, only what failed: one that passes now depends on timing and wants mending"; \
  $(PYTEST) -n 0 -x --last-failed --last-failed-no-failures none $(1); }; }
endef

# Long runs are left to the compiled tests, where there is a compiler.
test-interpreted: $(DEVELOPED)  ## every test, on plain Python
	@echo "== tests, interpreted (SEED=$(SEED) repeats this run)"
	@export WINDTUNNEL_FORM=interpreted; $(call tested,$(if $(shell command -v cc),-m "not long"))

test-compiled: compile  ## the tests again, on compiled modules
	@if $(PY) setup.py fresh; then \
	  echo "== tests, compiled"; export WINDTUNNEL_FORM=compiled; $(call tested,-m "not once"); \
	else echo "== tests, compiled: skipped, there is no C compiler here"; fi

# Without KUBECONFIG, a control plane is built from Go modules into the user's cache, once.
test-kubernetes: $(DEVELOPED)  ## the tests on a real Kubernetes API server (needs Go, or KUBECONFIG)
	@why="$$($(PY) -m tests.kubernetes.control_plane missing)"; \
	if [ -n "$$why" ]; then echo "== tests on Kubernetes: skipped, $$why"; exit 0; fi; \
	if [ -z "$$KUBECONFIG" ]; then \
	  echo "== building the API server, unless the cache has it (many minutes the first time)"; \
	  $(PY) -m tests.kubernetes.control_plane build || exit 1; fi; \
	echo "== tests on Kubernetes"; export WINDTUNNEL_KUBERNETES=1; $(call tested,-n 0 tests/kubernetes)

apiserver: $(DEVELOPED)  ## build the API server of `windtunnel rehearse` (needs Go 1.21), and print its path
	@$(PY) -m tests.kubernetes.control_plane apiserver

compile: $(DEVELOPED)  ## compile the hot modules beside their sources, when they changed
	@$(PY) setup.py fresh || { echo "== compiling the hot modules"; $(PY) setup.py -q build_ext --inplace; }

bench: compile  ## measure every claim against its baseline
	@$(PY) -m benchmarks

docs: $(DEVELOPED)  ## build the documentation; runs every example
	@$(BIN)/sphinx-build -q -W --keep-going -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

format: $(DEVELOPED)  ## put the code into the house format
	@$(BIN)/ruff check -q --fix . ; $(BIN)/ruff format -q .

clean:  ## remove all that was made here
	rm -rf $(VENV) build dist runs docs/_build docs/examples .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage
	rm -rf src/*.egg-info src/*.so src/windtunnel/compiled.*.json
	find src tests benchmarks setup.py \( -name '*.so' -o -name __pycache__ \) -prune -exec rm -rf {} +
