# Everything a developer or an operator of one machine needs. `make` alone explains itself.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.SHELLFLAGS := -euo pipefail -c

PORT ?= 8000
HOST ?= 127.0.0.1
DEMO ?= 1
VENV ?= .venv
MINUTES ?= 3
DATABASE ?= sqlite
STORE ?= valkey
PYTHON ?= $(firstword $(foreach name,python3.11 python3.12 python3.13 python3,$(shell $(name) -c 'import sys; sys.version_info >= (3, 11) and print("$(name)")' 2>/dev/null)))

BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
PYTEST := env -u DJANGO_SETTINGS_MODULE $(BIN)/python -m pytest
# Tests start many processes: each would compile all of Trinity anew where the environment forbids to keep what is compiled.
export PYTHONDONTWRITEBYTECODE :=
# Checks read the settings, which make a data directory: a throw-away one.
CHECK_ENV := env TRINITY_DATA_DIR=$(CURDIR)/$(VENV)/check-data DJANGO_SETTINGS_MODULE=trinity.settings

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: setup
setup: $(INSTALLED) ## Make the virtual environment and install everything into it

$(INSTALLED): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "Trinity needs Python 3.11 or newer: install one, or name it: make setup PYTHON=/path/to/python3" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { echo "$(PYTHON) can't make virtual environments: install its venv module (Debian: python3-venv)" >&2; exit 1; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

.PHONY: run
run: $(INSTALLED) ## Run all of Trinity in the foreground (PORT=8000, DEMO=0 without demo agents)
	@exec $(BIN)/python manage.py up --host $(HOST) --port $(PORT) $(if $(filter 0 no false,$(DEMO)),--no-demo,--demo)

.PHONY: test
test: $(INSTALLED) ## Run all tests, each tier with its time
	@set +e; failed=0; export TEST_ANSWERS=$$(mktemp -d); \
	for tier in fast flows browser chaos; do $(MAKE) --no-print-directory test-tier TIER=$$tier || failed=1; done; \
	echo "== tests: the contract"; $(CHECK_ENV) $(BIN)/python -m tests.contract $$TEST_ANSWERS || failed=1; \
	rm -rf $$TEST_ANSWERS; exit $$failed

.PHONY: test-fast
test-fast: $(INSTALLED) ## Run the tests that need one process only
	@$(MAKE) --no-print-directory test-tier TIER=fast

.PHONY: test-long
test-long: export TEST_LONG := 1
test-long: test ## Run all tests in their long forms

.PHONY: chaos
chaos: $(INSTALLED) ## Run a few minutes of faults on a stack under load (MINUTES=3, SEED=…, DATABASE=postgres, STORE=redis)
	$(BIN)/python -m tests.chaos --minutes $(MINUTES) --database $(DATABASE) --store $(STORE) $(if $(SEED),--seed $(SEED)) $(CHAOS_ARGS)

# Where a tier's tests are: a file that has none isn't read.
WHERE_fast := --ignore=tests/flows --ignore=tests/browser --ignore=tests/chaos
WHERE_flows := --ignore=tests/browser --ignore=tests/chaos
WHERE_browser := tests/browser
WHERE_chaos := tests/chaos

.PHONY: test-tier
test-tier: $(INSTALLED)
	@echo "== tests: $(TIER)"; start=$$SECONDS; status=0; \
	$(PYTEST) -q -m $(TIER) $(WHERE_$(TIER)) -n $(if $(filter fast flows,$(TIER)),3,2) $(if $(filter fast,$(TIER)),,--dist loadfile) $(PYTEST_ARGS) || status=$$?; \
	echo "== tests: $(TIER) took $$((SECONDS - start)) s"; \
	if [ $$status -eq 5 ]; then echo "== tests: $(TIER) has no test"; test "$${CI:-}" != true; else exit $$status; fi

.PHONY: check
check: $(INSTALLED) ## Check format, lint, types, imports, migrations and settings
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(CHECK_ENV) $(BIN)/mypy
	$(CHECK_ENV) $(BIN)/lint-imports
	$(CHECK_ENV) $(BIN)/python manage.py makemigrations --check --dry-run
	$(CHECK_ENV) $(BIN)/python -W error manage.py check

.PHONY: format
format: $(INSTALLED) ## Rewrite the code in the house's format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

.PHONY: docs
docs: $(INSTALLED) ## Write the documents that follow from the code
	$(CHECK_ENV) $(BIN)/python tests/architecture/documents.py

.PHONY: screenshots
screenshots: $(INSTALLED) ## Take the pictures of all pages that docs/images holds
	$(BIN)/python -m tests.browser.screenshots docs/images

.PHONY: bench
bench: $(INSTALLED) ## Measure against floors and peers; results in benchmarks/RESULTS.md
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[bench]'
	$(BIN)/python -m benchmarks
