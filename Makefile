# The entry point for people and for CI. `make help` lists the targets.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# The first interpreter that is new enough and can make virtual environments; `make PYTHON=… check` chooses another.
PYTHON ?= $(shell for candidate in python3.11 python3.12 python3.13 python3; do \
	"$$candidate" -c 'import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null \
	&& { echo "$$candidate"; break; }; done)
BIN := .venv/bin
INSTALLED := .venv/installed
# How many test processes `make check` runs at a time, on any machine.
WORKERS ?= 2
# How many files of tests on real servers run at a time. They wait for half of their time, so three fit on two cores.
FILES ?= 3
# A slow machine may miss a deadline (tests.support.waiting.NotInTime). Such a test is repeated once, and the report shows the
# first failure. No other failure is repeated. At most three tests of a run are repeated: the fourth late one fails.
PATIENT := --reruns 1 --rerun-show-tracebacks --max-suite-reruns 3
# With this variable set, each command and role that a test starts would compile a hundred modules again.
unexport PYTHONDONTWRITEBYTECODE
FAST := not kafka and not spark and not acceptance and not slow

.PHONY: help setup demo check lint types test mutants simulate fuzz acceptance containers bench clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-zA-Z.]+:.*## / {printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.venv: $(INSTALLED) ## The virtual environment with everything pinned in constraints.txt

$(INSTALLED): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "No Python 3.11, 3.12 or 3.13 with venv found: install one (Debian: apt-get install python3 python3-venv)." >&2; exit 2; }
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[all,dev]' -c constraints.txt
	touch $(INSTALLED)

setup: $(INSTALLED) ## The environment, Java, the broker's jars and Spark's Kafka connector (downloaded and prepared once)
	$(BIN)/python -m ledger.embedded
	$(BIN)/python -m ledger.adapters.spark

demo: setup ## Start a ledger, run jobs, kill one, and check that it resumes
	$(BIN)/jobledger demo

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check --quiet .
	$(BIN)/lint-imports --no-cache

types: $(INSTALLED) ## Check the types
	$(BIN)/mypy

check: lint types ## Linters, import layers, types and the fast tests: no network, no JVM
	$(BIN)/python -m pytest tests -q -n $(WORKERS) --dist worksteal -m "$(FAST)"

test: setup lint ## All tests, on real servers; ends with pytest's summary line
	$(BIN)/python -m pytest tests -n $(FILES) --dist loadfile --no-loadscope-reorder --durations=25 $(PATIENT) \
		--junitxml=build/tests.xml

mutants: setup ## Put one mistake at a time into the source; each must make a test fail
	$(BIN)/python -m tests.mutation

simulate: $(INSTALLED) ## Simulate the whole ledger in virtual time, by seed: make simulate SEED=1 N=1000 [STEPS=…] [MUTANT=…]
	$(BIN)/python -m tests.simulation --seed $(or $(SEED),1) -n $(or $(N),200) $(if $(STEPS),--steps $(STEPS)) $(if $(MUTANT),--mutant $(MUTANT))

fuzz: $(INSTALLED) ## Feed corrupt inputs to every parser: make fuzz SEED=1 N=1000000 [TARGET=keys]
	$(BIN)/python -m tests.fuzz --seed $(or $(SEED),1) --inputs $(or $(N),1000000) $(if $(TARGET),--target $(TARGET))

acceptance: setup ## Repeat the fault tests up to their full counts, slice by slice: make acceptance HOURS=1 [PART=moments]
	$(BIN)/python -m tests.acceptance.program $(if $(HOURS),--hours $(HOURS)) $(if $(PART),--part $(PART))

containers: $(INSTALLED) ## Start the compose file with docker, kill the leaders and the agent, and remove it
	$(BIN)/python -m tests.containers

bench: setup ## Run the benchmarks; results are ratios within one run
	$(BIN)/python -m benchmarks

clean: ## Remove caches and build results; .venv and downloaded jars stay
	rm -rf build dist .pytest_cache .ruff_cache .mypy_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -not -path './.venv/*' -prune -exec rm -rf {} +
