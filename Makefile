# systolith: `make` lists the targets.  Python 3.11, gcc, g++, make and perl are all a machine needs to have.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV   := .venv
BIN    := $(VENV)/bin
# Named after this folder: a venv knows where it stands, so one that came with a copied or moved tree is made anew.
STAMP  := $(VENV)/.installed-$(firstword $(shell printf %s '$(CURDIR)' | cksum))

# The module of tests/corpus that `make demo` runs; inputs.py makes weights that are too large to keep.
DEMO   ?= resnet18_infer_224

.DEFAULT_GOAL := help
.PHONY: help demo test test-all fuzz mutants lint format bless bench docs synth clean distclean
.DELETE_ON_ERROR:

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# Runs again only when pyproject.toml changes.  pip would compile on one core, forgive errors too, and leave out our own
# packages, which where PYTHONDONTWRITEBYTECODE is set would be compiled at every start.
$(STAMP): pyproject.toml
	@test -n "$(PYTHON)" || { echo "make: Python 3.11 or later is needed; found no python3" >&2; exit 1; }
	@echo "installing into $(VENV), once"
	@test -e $@ || $(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --editable '.[dev]'
	-$(BIN)/python -m compileall -qq -j 0 $(VENV)/lib isa compiler sim hw runtime reports
	@touch $@

demo: $(STAMP) ## compile and simulate ResNet-18, check it against XLA's result, write build/demo/report.html
	@mkdir -p build/demo
	@test -e build/demo/$(DEMO).npz || $(BIN)/python -m tests.corpus.inputs $(DEMO) build/demo/$(DEMO).npz
	$(BIN)/systolith run tests/corpus/$(DEMO).hlo --args build/demo/$(DEMO).npz \
	    --expect tests/corpus/$(DEMO).out.npz --chip tpu_v3 --check \
	    --report build/demo/report.html --trace build/demo/trace.json

test: $(STAMP) ## the lint, and beside it every test that takes seconds
	$(MAKE) --no-print-directory -j2 lint pytest PYTEST="-m 'not slow'"

test-all: $(STAMP) ## the lint, and beside it every test, and every property on more examples
	SYSTOLITH_THOROUGH=1 $(MAKE) --no-print-directory -j2 lint pytest

.PHONY: pytest
pytest: $(STAMP)
	env -u MAKEFLAGS $(BIN)/python -m pytest -n 2 --dist worksteal $(PYTEST)

fuzz: $(STAMP) ## 20,000 random files of every format: a result or one line of refusal (goes on where it was interrupted)
	$(BIN)/python -m tests.fuzz

mutants: $(STAMP) ## change the code in 200 places, one at a time, which a test must notice (goes on where it was interrupted)
	$(BIN)/python -m tests.mutants

lint: $(STAMP) ## ruff, mypy, the import direction, Verilator
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python -m systolith.hw.lint

format: $(STAMP) ## let ruff rewrite what it can
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

bless: $(STAMP) ## rewrite the recorded cycle counts after a wanted change of timing, and say what changed
	$(BIN)/python -m tests.bless programs corpus

bench: $(STAMP) ## measure everything and write bench/RESULTS.md (some: .venv/bin/python -m bench NAME ...)
	$(BIN)/python -m bench
	@set -e; for script in $(sort $(wildcard bench/bench_*.py)); do echo "== $$script"; $(BIN)/python $$script; done

docs: $(STAMP) ## build the pages, the Python API and the command line as a site, build/site; a broken link fails
	$(BIN)/python -m mkdocs build

synth: $(STAMP) ## synthesize the core at tiny with Yosys: no latches, no loops; gates by unit (the first time takes long)
	$(BIN)/python -m systolith.hw.synth

clean: ## remove what builds and tests leave (not .venv)
	rm -rf build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -path ./$(VENV) -prune -o \( -name __pycache__ -o -name sim_build \) -type d -prune -exec rm -rf {} +

distclean: clean ## remove .venv too
	rm -rf $(VENV)
