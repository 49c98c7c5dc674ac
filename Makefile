# Everything sets itself up: `make demo` and `make test` need Python >= 3.10, git and make, no more.

SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.tidemill-installed

# Spark's Python workers must be the interpreter that has the packages.
export PYSPARK_PYTHON := $(CURDIR)/$(BIN)/python
export PYSPARK_DRIVER_PYTHON := $(PYSPARK_PYTHON)

# tools/ensure-java prints the JAVA_HOME to use; a command that needs Java starts with $(JAVA).
JAVA = java_home="$$(tools/ensure-java)" && JAVA_HOME="$$java_home"

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint format types unit machines soak bench clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# Reinstalled only when pyproject.toml changes; the stamp goes away with the environment.
$(STAMP): pyproject.toml
	PYTHON="$(PYTHON)" tools/ensure-venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --use-pep517 -e '.[dev,bench,plot]'
	@touch $@

setup: $(STAMP) ## create .venv, install, make sure there is a Java runtime
	@tools/ensure-java > /dev/null

demo: setup ## the running example on Spark, in process and live (ARGS="--rows 1000000 --png")
	@$(JAVA) $(BIN)/python -m tidemill.demo $(ARGS)

test: setup lint types unit ## lint, types, tests and doctests

lint: $(STAMP) ## ruff check
	$(BIN)/ruff check .

format: $(STAMP) ## ruff format, and the fixes ruff is sure of
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(STAMP) ## mypy, strict on the package
	$(BIN)/mypy

unit: setup ## pytest with doctests, two processes, one Spark session (ARGS="-k windows")
	$(JAVA) $(BIN)/python -m pytest -n 2 --dist loadgroup $(ARGS)

# What pytest prints goes to out/soak.log, too; the machines' counts are the lines `fuzz:` and `faults:`.
machines: setup ## random queries, kills and damaged files; prints what was tried and what differed
	@mkdir -p out
	set -o pipefail; $(JAVA) TIDEMILL_KERNELS=compiled $(BIN)/python -m pytest -n0 -s -m "soak or interpreted" -q \
		tests/fuzz tests/faults $(ARGS) 2>&1 | tee out/soak.log
	@grep -E '^(fuzz|faults): .* (cases|differences)' out/soak.log

# Tests marked `interpreted` compile their kernels here: the whole product of what `make test` has a sample of.
soak: machines ## the machines, then properties on more examples, all kernels compiled, and with bounds checked
	$(JAVA) TIDEMILL_KERNELS=compiled TIDEMILL_EXAMPLES=10 $(BIN)/python -m pytest -n0 \
		-m "soak or hypothesis or interpreted" \
		--ignore tests/fuzz --ignore tests/faults $(ARGS)
	NUMBA_BOUNDSCHECK=1 NUMBA_CACHE_DIR=out/bounds TIDEMILL_CACHE=out/bounds TIDEMILL_KERNELS=compiled \
		TIDEMILL_EXAMPLES=2 $(BIN)/python -m pytest -n 2 -m "" tests/conformance tests/local tests/kernels \
		-k "not spark"

bench: setup ## benchmarks against other systems (ARGS="windows --quick")
	$(JAVA) $(BIN)/python -m benchmarks $(or $(ARGS),windows)

clean: ## remove caches and what runs left behind; .venv stays
	rm -rf build dist out artifacts spark-warehouse metastore_db derby.log
	rm -rf .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
