# make advise   install, and report on the bundled fused-MoE kernel (no GPU needed)
# make test     install what the tests need and run them all
# make lint     what CI checks besides the tests
# make bench    figures the tests print but do not assert, and bench.json (tests/bench/compare.py OLD NEW compares two)
# make gpu      the tests that need a GPU
# make rehearse what three half hours on a borrowed GPU would bring, on the fake device

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
WORKERS ?= 3

.PHONY: advise test lint bench gpu rehearse clean

advise: $(VENV)/.base
	$(BIN)/advisor advise fused_moe --model Qwen3-30B-A3B --gpu H200 --output advisor-out

test: $(VENV)/.test
	tests/setup/system-packages
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.test
	$(BIN)/python tests/bench/write.py bench.json
	$(BIN)/python -m pytest -m bench -s tests/bench/*.py

gpu: $(VENV)/.test
	$(BIN)/python -m pytest -m gpu -s tests

rehearse: $(VENV)/.test
	$(BIN)/python tests/gpu/rehearse.py

clean:
	rm -rf $(VENV) advisor-out dist build

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.base: pyproject.toml | $(BIN)/python
	@echo "installing triton-advisor and what it needs into $(VENV): a minute or two, once"
	$(BIN)/python -m pip install --disable-pip-version-check -e .
	touch $@

# What the tests need is installed by uv, in a third of pip's time (by pip where there is no uv), but for torch: pip alone takes a wheel that
# lies on disk. Bytecode of what is installed is made as it is imported: most of torch never is.
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile
SETUP := tests/setup/constraints.txt tests/setup/triton.txt

define install
	$(PIP) uv || true
	$(PIP) --no-deps -r tests/setup/constraints.txt
	$(BIN)/uv pip install --quiet --python $(BIN)/python -c tests/setup/constraints.txt -e '.[$(1)]' || $(PIP) -c tests/setup/constraints.txt -e '.[$(1)]'
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps -r tests/setup/triton.txt || $(PIP) --no-deps -r tests/setup/triton.txt
endef

$(VENV)/.test: pyproject.toml $(SETUP) | $(BIN)/python
	$(call install,test)
	touch $@ $(VENV)/.base

$(VENV)/.dev: pyproject.toml $(SETUP) | $(BIN)/python
	$(call install,dev)
	touch $@ $(VENV)/.base $(VENV)/.test
