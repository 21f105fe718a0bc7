# The two commands a newcomer needs: `make demo` and `make test`.
# Both set up .venv on first use; delete .venv to start again.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
BASE   := $(VENV)/.base
STAMP  := $(VENV)/.installed
JOBS   ?= 2

.PHONY: demo test lint types check bench reproduce docs clean help

help:
	@echo "make demo       privatise the Iris mean and a k-means fit, print certificates"
	@echo "make test       set-up, lint, types, tests"
	@echo "make bench      the benchmarks (minutes); results in benchmarks/results"
	@echo "make reproduce  the papers' tables and figures (three hours); pages in out/reproduce"
	@echo "make docs       the documentation as a site, in site/"
	@echo "make clean      remove the virtual environment and caches"

$(BASE): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $(BASE)

$(STAMP): $(BASE) papers/pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]' \
		--editable ./papers
	@touch $(STAMP)

demo: $(BASE)
	$(BIN)/pac demo --output out/demo

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

check: $(STAMP)
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal

test: lint types check

bench: $(STAMP)
	$(BIN)/python benchmarks/run.py

reproduce: $(STAMP)
	$(BIN)/pac reproduce alg -o out/reproduce --jobs $(JOBS)
	$(BIN)/pac reproduce design -o out/reproduce --jobs $(JOBS)
	$(BIN)/pac reproduce residual -o out/reproduce --jobs $(JOBS)
	$(BIN)/pac reproduce cs208 -o out/reproduce --jobs $(JOBS)
	$(BIN)/pac reproduce accuracy-first -o out/reproduce --jobs $(JOBS)

docs: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

clean:
	rm -rf $(VENV) out build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis
