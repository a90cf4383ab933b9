# Three commands serve a fresh machine: `make emulate`, `make lab-demo` and `make test`. Each installs what it needs (apt
# and pip).
SHELL := /bin/bash
.DEFAULT_GOAL := help
VENV := .venv
BIN := $(VENV)/bin

# Tests of one thing each; those that measure time, or look for what is left on the whole machine, which run alone; all
# others are of whole fabrics and of labs. Most of their time is waiting, so that three at a time fit on two cores.
WIDE := tests/kernel/emulate/ tests/kernel/crash/
SMALL := tests/fast/ $(filter-out $(WIDE),$(wildcard tests/kernel/*/))
ALONE := $(wildcard tests/kernel/emulate/test_theory_*.py) tests/long/test_machine_bias.py tests/kernel/emulate/test_queues.py \
	tests/long/test_half_a_machine.py tests/kernel/emulate/test_mishaps.py tests/kernel/emulate/test_killed_often.py \
	tests/kernel/emulate/test_calibrate.py
# Several tests run at a time on few cores: libraries that start a thread a core in each would fight over them, and
# processes that may not keep what they have compiled would compile it at each start.
TESTS := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/pytest -q
LABS := tests/lab/
FABRICS := $(WIDE) tests/long/ tests/bench/ tests/fuzz/

# After a command of dlcp: its exit code 4 is a warning, which its last lines explain; any other is an error.
WARN := { code=$$?; [ $$code -eq 4 ] || exit $$code; }

.PHONY: help setup setup-dev emulate lab-demo paper test test-fast verify lint fuzz golden notebooks clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

setup:  ## install what an emulation and a lab need: apt packages where root, then a .venv (again = no-op)
	@bash testbed/setup.sh use

setup-dev:
	@bash testbed/setup.sh test

emulate: setup  ## train over TCP and over DLCP on an emulated fabric, and show the difference
	@$(BIN)/dlcp run quickstart || $(WARN)

lab-demo: setup  ## a lab of namespaces behind real SSH: deploy, verify with packets, run an experiment, put everything back
	@$(BIN)/dlcp lab demo || $(WARN)

paper: setup  ## the whole comparison: every published claim as an experiment, then analysis/RESULTS.md (three and a half hours; again = resume; in an hour, with less: dlcp paper --quick)
	@$(BIN)/dlcp paper

test-fast: setup-dev  ## tests that need no root, process, socket or extra: the loop while writing (without those of reports)
	@$(TESTS) -n 2 --dist worksteal --ignore=tests/fast/report tests/fast/

test: setup-dev  ## every test; those that need root or a kernel feature say so when they are skipped
	@status=0; \
	$(TESTS) -n 3 --dist loadfile --no-loadscope-reorder $(LABS) $(SMALL) || status=1; \
	$(TESTS) -n 3 --dist worksteal $(addprefix --ignore=,$(ALONE)) $(FABRICS) || status=1; \
	$(TESTS) $(ALONE) || status=1; \
	exit $$status

verify: setup-dev  ## the long proofs: the emulated switch against queueing theory, 50 kills, failures of a lab, a slower machine (50 minutes, root; DLCP_ALL_WAYS=1: every case, an hour more)
	@status=0; \
	$(TESTS) -m long $(ALONE) || status=1; \
	$(TESTS) -n 2 --dist loadfile --no-loadscope-reorder -m long $(addprefix --ignore=,$(ALONE)) $(LABS) $(SMALL) $(FABRICS) || status=1; \
	exit $$status

lint: setup-dev  ## ruff, mypy --strict, plain words, yamllint, the numbered rules of PROTOCOL.md, ansible-lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python tests/helpers/words.py
	$(BIN)/yamllint -s .
	$(BIN)/python tests/helpers/protocol_rules.py
	@PATH="$(CURDIR)/$(BIN):$$PATH" ANSIBLE_CONFIG=playbooks/ansible.cfg $(BIN)/ansible-lint

fuzz: setup-dev  ## look for datagrams and schedules that break the C core (FUZZ_SECONDS=120 a target); keeps what it learns
	$(BIN)/python tests/fuzz/run.py --seconds $(or $(FUZZ_SECONDS),120)

golden: setup-dev  ## write the expected error texts and switch configurations anew; review the diff
	DLCP_GOLDEN=write $(BIN)/pytest -q tests/fast/model/test_model_errors.py tests/fast/switches/test_switch_render.py tests/fast/switches/test_switch_refusals.py \
		tests/fast/switches/test_deploy_screen.py

notebooks: setup-dev  ## render analysis/*.ipynb from the newest results into results/
	@mkdir -p results
	$(BIN)/jupyter nbconvert --to html --execute --output-dir results analysis/*.ipynb

clean:  ## remove what a build or a broken run left; results stay
	@if [ -x $(BIN)/dlcp ]; then $(BIN)/dlcp clean --yes; fi
	rm -rf build .pytest_cache .mypy_cache .ruff_cache .hypothesis
