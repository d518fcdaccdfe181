# Everything a person or a machine runs here. Needs python3 (3.11 or later), pip and g++.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check
JOBS ?= auto

.PHONY: demo test check format wheel-check benchmarks clean

demo: $(VENV)/installed  ## the main job: a shipped model on a shipped part
	$(BIN)/capacity size llama-3.1-8b nvidia-h100-sxm5-80gb --batch 16 --context 8192

test: $(VENV)/installed-for-tests  ## every test, doctest and notebook
	$(BIN)/python -m pytest -n $(JOBS) --nbmake tests capacity notebooks

check: $(VENV)/installed-for-tests  ## lint, types and import rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/installed-for-tests  ## what `make check` wants of the layout
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

wheel-check: $(VENV)/installed-for-tests  ## the built wheel, alone in a fresh environment, lists its catalogue
	rm -rf build/wheel build/wheel-venv
	$(BIN)/python -m build --wheel --outdir build/wheel . > /dev/null
	$(PYTHON) -m venv build/wheel-venv
	build/wheel-venv/bin/python -m pip --quiet --disable-pip-version-check install build/wheel/*.whl
	cd build && wheel-venv/bin/capacity hardware list > /dev/null
	cd build && wheel-venv/bin/capacity models list > /dev/null
	cd build && wheel-venv/bin/capacity size llama-3.1-8b nvidia-h100-sxm5-80gb > /dev/null
	@echo "the wheel installs alone, lists its catalogue and sizes a model"

benchmarks: $(VENV)/installed-for-tests  ## how long things take; prints, judges nothing
	$(BIN)/python -m pytest -q -s tests/benchmarks

$(VENV)/installed: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install --editable .
	touch $@

$(VENV)/installed-for-tests: $(VENV)/installed
	$(PIP) install --editable ".[all,measure,test]"
	touch $@

clean:
	rm -rf $(VENV) build dist
