# Everything starts from here; each target first makes the virtual environment it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/installed-$(shell cat pyproject.toml constraints.txt | sha256sum | cut -c1-16)

.PHONY: install quickstart test test-full bench check tables

install: $(STAMP)

# The stamp carries the hash of what is asked for, so a changed pin installs again and nothing else does.
$(STAMP):
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	rm -f $(VENV)/installed-*
	touch $@

quickstart: $(STAMP)
	$(BIN)/cairn quickstart

test: $(STAMP)
	$(BIN)/python -m pytest -m 'not full'

test-full: $(STAMP)
	$(BIN)/python -m pytest

bench: $(STAMP)
	set -e; for file in tests/benchmarks/$(or $(NAME),[a-z]*).py; do \
		name=$$(basename $$file .py); echo "== $$name"; $(BIN)/python -m tests.benchmarks.$$name; \
	done

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

tables: $(STAMP)
	$(BIN)/python -m cairn.config.table
	$(BIN)/python -m cairn.cli.table
	$(BIN)/python -m cairn.cli.stage_table
	$(BIN)/python -m cairn.cli.method_table
