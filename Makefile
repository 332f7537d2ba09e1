# The front door, the same for people and for CI. `make help` lists what there is.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# The first interpreter that is new enough and can make virtual environments; `make PYTHON=… check` chooses another.
PYTHON ?= $(shell for candidate in python3.11 python3.12 python3.13 python3; do \
	"$$candidate" -c 'import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null \
	&& { echo "$$candidate"; break; }; done)
BIN := .venv/bin
INSTALLED := .venv/installed
# So many processes reckon at a time in `make check`, whatever the machine.
WORKERS ?= 2
# Tests on real servers wait for about half of their time: so three of their files at a time, on two cores too.
FILES ?= 3
# A deadline that passed (tests.support.waiting.NotInTime) may be the machine's doing. Such a test is tried once more, and the
# report shows what happened at first. Nothing else is tried again, and no more than three tests of a run are: the fourth
# that is late has failed.
PATIENT := --reruns 1 --rerun-show-tracebacks --max-suite-reruns 3
# Else each command that a test runs, and each role, compiles a hundred modules anew.
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

demo: setup ## Start a ledger, run jobs, kill one, see it come back
	$(BIN)/jobledger demo

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check --quiet .
	$(BIN)/lint-imports --no-cache

types: $(INSTALLED) ## Check the types
	$(BIN)/mypy

check: lint types ## Lint, layers, types and the fast tests: no network, no JVM
	$(BIN)/python -m pytest tests -q -n $(WORKERS) --dist worksteal -m "$(FAST)"

test: setup lint ## Everything, on real servers; ends with pytest's closing line
	$(BIN)/python -m pytest tests -n $(FILES) --dist loadfile --no-loadscope-reorder --durations=25 $(PATIENT) \
		--junitxml=build/tests.xml

mutants: setup ## Mistakes put into the source one at a time: each must make a test fail
	$(BIN)/python -m tests.mutation

simulate: $(INSTALLED) ## The whole ledger in virtual time, by seed: make simulate SEED=1 N=1000 [STEPS=…] [MUTANT=…]
	$(BIN)/python -m tests.simulation --seed $(or $(SEED),1) -n $(or $(N),200) $(if $(STEPS),--steps $(STEPS)) $(if $(MUTANT),--mutant $(MUTANT))

fuzz: $(INSTALLED) ## Spoiled inputs for everything that reads: make fuzz SEED=1 N=1000000 [TARGET=keys]
	$(BIN)/python -m tests.fuzz --seed $(or $(SEED),1) --inputs $(or $(N),1000000) $(if $(TARGET),--target $(TARGET))

acceptance: setup ## Everything that repeats, at full size, slice by slice: make acceptance HOURS=1 [PART=moments]
	$(BIN)/python -m tests.acceptance.program $(if $(HOURS),--hours $(HOURS)) $(if $(PART),--part $(PART))

containers: $(INSTALLED) ## The compose file in the engine that docker reaches: start it, kill leaders and the agent, take it down
	$(BIN)/python -m tests.containers

bench: setup ## The benchmarks, as ratios within one run
	$(BIN)/python -m benchmarks

clean: ## Remove caches and build results; .venv and downloaded jars stay
	rm -rf build dist .pytest_cache .ruff_cache .mypy_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -not -path './.venv/*' -prune -exec rm -rf {} +
