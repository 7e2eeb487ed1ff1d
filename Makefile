# Two commands matter: `make eval` and `make test`. Both set up what they need, in any order, any number of times.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# Arguments for `make eval`, as in: make eval ARGS="--limit 3"
ARGS ?=

.PHONY: help setup browser model eval test lint test-full format clean

help:
	@echo "make eval [ARGS=...]  run web agents on a KV budget and write a report"
	@echo "make test             ruff, mypy and the tests"
	@echo "make test-full        the long checks as well"
	@echo "make setup            only install into $(VENV)"

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "agentkv needs Python 3.11 or newer; set PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { echo "python venv is missing: sudo apt-get install python3-venv" >&2; exit 1; }
	@echo "installing into $(VENV) (some minutes the first time)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $(READY)

browser: $(READY)
	@scripts/get_browser.sh $(BIN)/python

model: $(READY)
	@echo "model: $$($(BIN)/agentkv models pull smollm2-135m)"

eval: browser model
	@$(BIN)/agentkv eval --tasks vwa75 --policy full --policy conf-kv --limit 4 $(ARGS)
	@echo "all tasks: $(BIN)/agentkv eval --tasks vwa75 --policy full --policy conf-kv"

lint: $(READY)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

test: lint browser model
	@$(BIN)/python -m pytest

test-full: lint browser model
	@$(BIN)/python -m pytest -m "full or not full"

format: $(READY)
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache
