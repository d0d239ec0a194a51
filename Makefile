# `make demo` trains, evaluates and translates; `make test` runs the tests. Both set up everything they need.

PYTHON ?= python3
VENV ?= .venv
EXTRAS = dev
# The CPU build of torch on Linux, where the plain package brings CUDA along. For a GPU: `make demo TORCH_INDEX=`
TORCH_INDEX ?= --extra-index-url https://download.pytorch.org/whl/cpu --retries 1
BIN = $(VENV)/bin
STAMP = $(VENV)/.installed
# one process with one thread per core is faster than one process with all threads
PYTEST = OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n logical --maxprocesses 8 --dist loadgroup
export PIP_DISABLE_PIP_VERSION_CHECK = 1

.PHONY: demo test test-slow check style notebooks clean

demo: $(STAMP)
	$(BIN)/python training/demo.py

test: $(STAMP)
	$(BIN)/python tests/contract/upstream.py || echo "no source archive of Transformers: its tests are skipped"
	$(PYTEST) $(ARGS)

test-slow: $(STAMP)
	$(PYTEST) -m "slow or not slow" $(ARGS)

check: $(STAMP)
	$(BIN)/ruff check . && $(BIN)/ruff format --check .

style: $(STAMP)
	$(BIN)/ruff check --fix . && $(BIN)/ruff format .

clean:
	rm -rf $(VENV) .cache demo_output build *.egg-info

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q -c constraints.txt $(TORCH_INDEX) torch
	$(BIN)/python -m pip install -q -c constraints.txt -e ".[$(EXTRAS)]"
	touch $@
