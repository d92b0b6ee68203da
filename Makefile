# make demo | test | lint | bench | clean
#   VENV=path    use (or make) this environment instead of .venv
#   PYTHON=path  the interpreter that a new environment is made with
PYTHON ?= python3
VENV ?= .venv
ARGS ?=
BIN := $(VENV)/bin
TOOLS := $(VENV)/.stf_places_tools
BUILT := $(VENV)/.stf_places_built
TYPING := build/typing
NATIVE := $(shell find native -type f -not -name '*.pyc')
WORKLOADS := $(patsubst benchmarks/%/__init__.py,%,$(sort $(wildcard benchmarks/*/__init__.py)))
FORMATTED := $(filter %.hpp %.cpp,$(NATIVE))

.PHONY: demo test lint bench clean
.DELETE_ON_ERROR:

demo: $(BUILT)
	$(BIN)/python examples/heat.py $(ARGS)

test: $(BUILT)
	$(BIN)/python -m pytest -n auto -m "not gpu" $(ARGS)

# mypy sees the package as it is installed: the stubs of the compiled modules lie beside their sources.
lint: $(TOOLS)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	@echo clang-format --dry-run native
	@$(BIN)/clang-format --dry-run -Werror $(FORMATTED)
	@rm -rf $(TYPING) && mkdir -p $(TYPING)/stf_places
	@ln -s $(CURDIR)/stf_places/* $(TYPING)/stf_places/
	@ln -s $(CURDIR)/native/cython $(TYPING)/stf_places/_native
	$(BIN)/mypy

bench: $(BUILT)
	set -e; for name in $(WORKLOADS); do $(BIN)/python -m benchmarks $$name $(ARGS); done

clean:
	rm -rf build dist out $(BUILT)

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(TOOLS): pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install -q --disable-pip-version-check --upgrade "pip>=25.1"
	$(BIN)/python -m pip install -q --group build --group develop
	touch $@

# Without build isolation, so that a second build compiles only what changed.
$(BUILT): $(TOOLS) $(NATIVE) stf_places/_version.py
	$(BIN)/python -m pip install -q --no-build-isolation -e .
	touch $@
