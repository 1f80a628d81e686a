# Everything a newcomer needs: `make demo` shows the tool, `make test` passes the tests. Both make .venv first.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
STAMP_DEV := $(VENV)/.installed-dev

.PHONY: help demo test test-all lint format bench tables golden fixtures clean

help:
	@echo "make demo      set up, rewrite a module out of JAX, show the diff"
	@echo "make test      set up with all extras and run the tests"
	@echo "make test-all  the same with the long sweeps"
	@echo "make lint      ruff and mypy"
	@echo "make bench     speed, against XLA's own parser and printer"
	@echo "make tables    regenerate the grammar's tables after editing grammar/hlo.lark"
	@echo "make golden    regenerate the golden files under fixtures/golden (read them before you commit)"
	@echo "make fixtures  dump fixtures/jax anew from the programs in fixtures/programs"

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(STAMP): pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	@$(BIN)/python -m compileall -q hlo_cp2ag
	@touch $@

$(STAMP_DEV): pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev,xla]'
	@$(BIN)/python -m compileall -q hlo_cp2ag
	@touch $@ $(STAMP)

demo: $(STAMP)
	@$(BIN)/python bench/demo.py

test: $(STAMP_DEV)
	$(BIN)/python -m pytest -n 2 -m "not sweep"

test-all: $(STAMP_DEV)
	$(BIN)/python -m pytest -n 2

lint: $(STAMP_DEV)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(STAMP_DEV)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(STAMP_DEV)
	@$(BIN)/python -m compileall -q hlo_cp2ag
	$(BIN)/python bench/bench.py

tables: $(STAMP)
	$(BIN)/python -m hlo_cp2ag.text.grammar

golden: $(STAMP_DEV)
	$(BIN)/python -m tests.golden.regenerate

fixtures: $(STAMP_DEV)
	$(BIN)/python fixtures/programs/dump.py

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .hypothesis build dist
