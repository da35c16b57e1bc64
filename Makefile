# Everything a developer does, by name. `make test` and `make demo` start from a bare Debian 12 with Python 3.11 or newer.
# What must be on the machine is looked at each time (a few milliseconds); what is built or installed is built once.

VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
WITNESS := probes/kernel/witness.bpf.o probes/kernel/witness_by_calls.bpf.o
BOXINIT := supervisor/launch/boxinit
WITNESS_SOURCES := $(wildcard probes/kernel/*.bpf.c probes/kernel/*.h)
PYTHON_DIRS := supervisor probes policies tests scripts setup.py
export PATH := $(PATH):/usr/sbin:/sbin

.DEFAULT_GOAL := help
.PHONY: help setup machine demo test check format format-check lint types bench docs clean
.DELETE_ON_ERROR:

help: ## list what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(INSTALLED) $(WITNESS) $(BOXINIT) ## install what is missing (Debian packages, venv), build the witness and the box's init

machine:
	@sh scripts/setup_machine.sh packages

$(WITNESS): probes/kernel/%.bpf.o: $(WITNESS_SOURCES) scripts/build_native.py | machine
	@$$(sh scripts/setup_machine.sh python) scripts/build_native.py $*

$(BOXINIT): $(wildcard supervisor/launch/boxinit.c) scripts/build_native.py | machine
	@$$(sh scripts/setup_machine.sh python) scripts/build_native.py boxinit

# The built artefacts come first: the package's build takes them as they are.
$(INSTALLED): pyproject.toml setup.py | machine $(WITNESS) $(BOXINIT)
	@sh scripts/setup_machine.sh venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --config-settings editable_mode=compat --editable '.[dev]'
	@$(BIN)/python -m compileall -q supervisor probes policies
	@touch $@

demo: setup ## short trials with their reports: ordinary, violated, caught, unresolved, connected
	@$(BIN)/python scripts/demo.py

test: setup ## all tests; those that need a kernel's capability skip only where doctor says it is missing
	@sh scripts/setup_machine.sh test
	@$(BIN)/python -m pytest $(ARGS)

check: lint types format-check test ## lint, types, format and tests: what a change must pass

format: setup ## rewrite the code in the project's format
	$(BIN)/ruff format $(PYTHON_DIRS)
	$(BIN)/ruff check --fix --exit-zero --quiet $(PYTHON_DIRS)

format-check: setup
	$(BIN)/ruff format --check $(PYTHON_DIRS)

lint: setup ## ruff, every rule
	$(BIN)/ruff check $(PYTHON_DIRS)

types: setup ## mypy, strict
	$(BIN)/mypy
	MYPYPATH=tests/scenario $(BIN)/mypy scripts/*.py

bench: setup ## measure overhead, start-up, log and gateway here, against bare, bwrap, strace and tinyproxy
	$(BIN)/python scripts/bench_start.py
	$(BIN)/python scripts/bench_overhead.py
	$(BIN)/python scripts/bench_log.py
	$(BIN)/python scripts/bench_gateway.py

docs: setup ## write help texts, event kinds and policy keys into the manual again
	$(BIN)/python scripts/update_docs.py

clean: ## remove what was built; the machine's packages stay
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage
	rm -f $(WITNESS) $(BOXINIT)
	find supervisor probes policies tests scripts -name __pycache__ -type d -exec rm -rf {} +
