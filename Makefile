# What can be done here; `make help` lists it. Every path is relative, so a space in the project's own path does no harm,
# and every tool runs as `python -m`, because scripts in .venv/bin break where the path is long or has a space in it.

PY := .venv/bin/python
# Three on two cores: tests wait for a database or for Java.
WORKERS ?= 3
MINUTES ?= 30
PYTEST_ARGS ?=
LANES ?=
# Tests start hundreds of processes: each would compile the sources again.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint types imports compiled quick unit coverage format soak soak-all fuzz test-spark-matrix bench bench-quick docs notebooks requirements constraints clean

help:  ## Say what each target does
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-17s %s\n", $$1, $$2 }' Makefile

setup: .venv/.installed  ## Make .venv with the pinned versions and see to Java; quick when nothing changed

.venv/.installed: pyproject.toml constraints.txt scripts/setup.sh
	@bash scripts/setup.sh
	@touch .venv/.installed

demo: setup  ## Play a feature store in seven acts, on SQLite and a local Spark; CONSOLE=1 then shows it in a browser
	@$(PY) -m deltars.cli demo $(if $(CONSOLE),--console)
	@echo '    make docs                           # builds the documentation; then open build/site/index.html'

test: setup  ## Check everything: lint, types, import rules and the whole test suite
	@$(MAKE) --no-print-directory --jobs 2 lint types imports compiled
	@$(MAKE) --no-print-directory unit

lint: setup  ## Check style and formatting
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(PY) -m codespell_lib src docs examples *.md

types: setup  ## Check types, strictly
	@$(PY) -m mypy src tests $(wildcard examples benchmarks scripts)

imports: setup  ## Check that each layer imports only from the layers below it
	@$(PY) -c 'from importlinter.cli import lint_imports_command as check; check()' --no-logo --no-cache

quick: setup  ## Run, in two minutes, what needs no Java and has SQLite for a catalog; nothing slow
	@$(PY) -m pytest -n $(WORKERS) --dist loadgroup -m "not (spark or postgres or duckdb or soak or slow)" $(PYTEST_ARGS)

unit: setup build/spark-classes.jsa  ## Run the test suite; PYTEST_ARGS="-k name" for a part of it, WORKERS=0 for one process
	@$(PY) -m pytest -n $(WORKERS) --dist loadgroup $(PYTEST_ARGS)

# Done beside the checks, which leave a core idle: else every worker would compile all tests.
compiled: setup build/spark-classes.jsa
	@$(PY) -m pytest --collect-only -qq > /dev/null

# It makes each start of Spark cheaper; without Java there is none, and the tests that need Java say so.
build/spark-classes.jsa: .venv/.installed tests/support/class_archive.py
	@-$(PY) -m tests.support.class_archive > /dev/null

coverage: setup  ## Measure which branches the suite reaches and write docs/coverage.md; PYTEST_ARGS as in `make unit`
	@rm -rf build/coverage && mkdir -p build/coverage
	@-$(PY) -m coverage run -m pytest -n $(WORKERS) --dist loadgroup $(PYTEST_ARGS)
	@$(PY) -m coverage combine --quiet && $(PY) -m coverage json --quiet
	@$(PY) scripts/coverage_page.py build/coverage/report.json '$(PYTEST_ARGS)'

format: setup  ## Put style and formatting right
	@$(PY) -m ruff check --fix .
	@$(PY) -m ruff format .

soak: setup  ## Run the fault campaign for MINUTES (30) and write docs/reliability.md; DELTARS_SEED=n repeats a run
	@DELTARS_SOAK=1 DELTARS_MINUTES=$(MINUTES) $(PY) -m pytest -m campaign -n 0 $(PYTEST_ARGS)

soak-all: setup  ## Run the campaign and every other soak test at its long size, which takes hours
	@DELTARS_SOAK=$${DELTARS_SOAK:-1} DELTARS_MINUTES=$(MINUTES) $(PY) -m pytest -m "soak or campaign" -n 0 --timeout 7200 $(PYTEST_ARGS)

test-spark-matrix: setup  ## Test the Spark data plane on pyspark 4.1, 4.2 and the newest, each in its own environment
	@$(PY) scripts/spark_matrix.py

bench: setup  ## Measure every lane at full size beside the peers, and write docs/performance.md; LANES=a,b for some
	@-bash scripts/peers.sh
	@$(PY) -m benchmarks $(if $(LANES),--only $(LANES))

bench-quick: setup  ## Measure the main ratios at small sizes, into build/bench
	@-bash scripts/peers.sh
	@$(PY) -m benchmarks --size quick $(if $(LANES),--only $(LANES))

fuzz: setup  ## Search for input that breaks a parser, for MINUTES; needs `pip install atheris`
	@$(PY) -m tests.fuzz --minutes $(MINUTES)

requirements: setup  ## Write docs/requirements.md and docs/reliability.md from the markers on the tests
	@$(PY) -m tests.support.requirements

docs: setup  ## Build the documentation as a site, strictly, into build/site
	@NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict
	@echo 'Open build/site/index.html in a browser.'

notebooks: setup  ## Run the notebooks, and save them with their outputs
	@$(PY) scripts/notebooks.py

constraints: setup  ## Write constraints.txt from what .venv holds now
	@bash scripts/constraints.sh

clean:  ## Remove .venv and every cache
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache build dist
	find src tests examples benchmarks scripts -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
