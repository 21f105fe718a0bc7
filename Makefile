# The two commands a newcomer needs: `make demo` and `make test`.
# Both set up .venv on first use; delete .venv to start again.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
BASE   := $(VENV)/.base
STAMP  := $(VENV)/.installed
JOBS   ?= 2

.PHONY: demo test lint types check bench reproduce docs wheel-check clean help

help:
	@echo "make demo       release a mean and a k-means fit, print certificates"
	@echo "make test       set-up, lint, types, tests"
	@echo "make bench      the benchmarks (minutes); results in benchmarks/results"
	@echo "make reproduce  the papers' tables and figures (hours; a stopped run goes on); pages in out/reproduce"
	@echo "make docs       the documentation as a site, in site/"
	@echo "make wheel-check  build the wheel, install it elsewhere and run pac demo there"
	@echo "make clean      remove the virtual environment and caches"

$(BASE): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $(BASE)

$(STAMP): pyproject.toml papers/pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]' \
		--editable ./papers
	@touch $(BASE) $(STAMP)

demo: $(BASE)
	$(BIN)/pac demo --output out/demo

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

# Compiled files are kept whatever the environment says: the tests start Python a hundred times.
check: $(STAMP)
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n $(JOBS) --dist worksteal

# Types are checked on one core: the tests need not wait.
test: lint
	$(MAKE) -j 2 types check

bench: $(STAMP)
	$(BIN)/python benchmarks/run.py

reproduce: $(STAMP)
	$(BIN)/pac reproduce alg -o out/reproduce --jobs $(JOBS)
	$(BIN)/pac reproduce design -o out/reproduce --jobs $(JOBS)
	$(BIN)/pac reproduce residual -o out/reproduce --jobs $(JOBS)
	$(BIN)/pac reproduce accuracy-first -o out/reproduce --jobs $(JOBS)

docs: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# Nothing of the checkout can be seen from the folder in which the wheel is tried.
wheel-check:
	set -e; folder=$$(mktemp -d); trap 'rm -rf "$$folder"' EXIT; unset PYTHONPATH; \
	$(PYTHON) -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir "$$folder" .; \
	$(PYTHON) -m venv "$$folder/env"; cd "$$folder"; wheel=$$(ls ./*.whl); \
	env/bin/python -m pip install --quiet --disable-pip-version-check "$$wheel"; \
	env/bin/pac demo --output demo; \
	env/bin/python -c 'import pacprivacy as pac; [getattr(pac, name) for name in pac.__all__]'; \
	env/bin/python -m pip install --quiet --disable-pip-version-check --dry-run \
		"$$wheel[data,jax,plot,postgres]"; \
	echo "$$wheel runs outside the checkout, and its extras resolve together"

clean:
	rm -rf $(VENV) out build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis
