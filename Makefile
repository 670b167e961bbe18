# SPDX-License-Identifier: GPL-2.0-or-later
# Every target sets up what it needs: on a fresh Debian machine `make demo` is enough.
.DEFAULT_GOAL := help
.PHONY: help setup fmt lint type check unit agents test test-faults chaos demo lab-down docs
MAKEFLAGS += --no-print-directory

BIN := .venv/bin
# The laboratory makes network namespaces and mounts: that takes root.
ROOT := $(if $(filter 0,$(shell id -u)),,sudo --preserve-env=PATH,TERM,LANG)

help: ## Show this help
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## Install system packages and make .venv (all other targets do this themselves)
	@scripts/bootstrap

fmt: setup ## Format the code
	@$(BIN)/ruff format --quiet
	@$(BIN)/ruff check --quiet --fix

lint: setup ## ruff, import layers, shellcheck, links, ansible-lint, mypy
	@scripts/check

type: setup ## mypy --strict
	@$(BIN)/mypy

check: setup ## All checks that need no laboratory: lint, types, unit tests (a minute or two)
	@$(MAKE) --jobs=2 --output-sync=target lint unit agents

# Beside the linters and the others, which take as long: so two cores are busy.
unit: setup
	@timeout 600 $(BIN)/pytest -q tests/unit --ignore=tests/unit/agents --ignore=tests/unit/safety

agents: setup
	@timeout 600 $(BIN)/pytest -q tests/unit/agents tests/unit/safety

test: lint ## Everything CI runs: check, the laboratory's quick tests, a slice of all others (45 minutes)
	@$(ROOT) env SANCTL_LAB_TESTS=required PYTHONDONTWRITEBYTECODE=1 \
	  timeout --foreground 85m $(BIN)/python -m tests.support.parts \
	  -m 'not lab or quick or slice' --durations=30

test-faults: setup ## The long tests: fencing, strategies, stops, levels, caches, double faults (hours)
	@$(ROOT) env SANCTL_LAB_TESTS=required PYTHONDONTWRITEBYTECODE=1 \
	  timeout --foreground 150m $(BIN)/pytest -m faults tests/lab tests/chaos

chaos: setup ## 100 random faults under load, an hour or more; CHAOS='--faults 20 --seed 7'
	@$(ROOT) $(BIN)/sanctl chaos run $(CHAOS)

demo: setup ## A cluster that fails over before your eyes; the lab stays up to play with
	@$(ROOT) $(BIN)/sanctl demo $(DEMO)

lab-down: setup ## End the demo's laboratory
	@$(ROOT) $(BIN)/sanctl lab down

docs: setup ## Write the index of the decisions; check that every link leads somewhere
	@$(BIN)/python scripts/adr_index.py
	@$(BIN)/python scripts/check_links.py
