# Every target sets up what it needs. PYTHON chooses the interpreter, e.g. `make test PYTHON=python3.13`.
PYTHON ?= python3.11
VENV ?= .venv
BIN = $(VENV)/bin
VERSION = $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')

.PHONY: demo test test-matrix lint types docs bench-actors clean

$(VENV)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade --constraint constraints.txt pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[uvloop,testing,web]' --group test --group lint --group docs --group bench
	touch $@

demo: $(VENV)/.ready ## run the main job
	$(BIN)/python examples/worker_pool.py

test: $(VENV)/.ready ## set up and pass all tests, with coverage
	scripts/test $(BIN)

test-matrix: ## the tests of actors/ on each other Python that is installed
	scripts/test-matrix

lint: $(VENV)/.ready
	scripts/lint $(BIN)

types: $(VENV)/.ready
	scripts/types $(BIN)

docs: $(VENV)/.ready
	$(BIN)/mkdocs build --strict --quiet

bench-actors: $(VENV)/.ready
	$(BIN)/python benchmarks/actors.py

clean:
	rm -rf .venv* .coverage* .mypy_cache .pytest_cache .ruff_cache .hypothesis site dist
