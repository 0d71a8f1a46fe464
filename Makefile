# make demo    contracts reviewed while workers are killed; make demo ARGS="--documents 20 --seed 7"
# make test    linter, types, import rules and all tests; make test ARGS="-m unit"
#              make test ARGS="-m 'not clone'" leaves out the one that fetches packages again;
#              make test JOBS=0 runs them one after the other, in this process
# make peers   the tests against real model servers that nobody here wrote, in .venv-peers;
#              make test runs them too
# make adapters    the tests of each agent framework's adapter, in .venv-adapters/NAME; make test
#              runs them too; make adapters ADAPTERS=langgraph ARGS="-x"
# make bench   the figures of docs/results/performance.md
# make reliability    SIGKILLs between effects and their settlement, counted at the service:
#              docs/results/reliability.md; make reliability ARGS="--kills 250"
# Each sets up what it needs in .venv at its first run and again when a lock file changes.

PYTHON ?= python3
ARGS ?=
# Processes that run tests, each with servers of its own: tests wait more than they compute.
JOBS ?= auto
ADAPTERS ?= pydantic_ai openai_agents langgraph
UV_VERSION := 0.13.9
BIN := .venv/bin

# Interpreters are not downloaded: the one in PYTHON is the one that runs.
export UV_PYTHON_DOWNLOADS := never
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_ROOT_USER_ACTION := ignore
export VIRTUAL_ENV := $(CURDIR)/.venv

.NOTPARALLEL: # two targets must not set up .venv at once
.PHONY: setup demo test lint format bench reliability peers adapters lock clean

setup: .venv/run.ok

demo: .venv/run.ok
	@$(BIN)/onward demo $(ARGS)

test: lint .venv-peers/ok $(ADAPTERS:%=.venv-adapters/%/run.ok)
	@$(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder $(ARGS)

lint: .venv/dev.ok
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy
	@$(BIN)/lint-imports

format: .venv/dev.ok
	@$(BIN)/ruff check --fix-only
	@$(BIN)/ruff format

bench: .venv/dev.ok
	@$(BIN)/python -m benchmarks $(ARGS)

reliability: .venv/dev.ok
	@$(BIN)/python -m tests.reliability $(ARGS)

peers: .venv/dev.ok .venv-peers/ok
	@$(BIN)/python -m pytest tests/peers $(ARGS)

# A framework beside everything else that the product is tested with, so that workers run in it.
adapters: $(ADAPTERS:%=.venv-adapters/%/run.ok)
	@set -e; for name in $(ADAPTERS); do \
		.venv-adapters/$$name/bin/python -m pytest tests/adapters/$$name $(ARGS); done

# Hashes of every file of every platform, and no address of any registry.
LOCK := $(BIN)/uv pip compile pyproject.toml --quiet --universal --python-version 3.11 \
	--generate-hashes --no-emit-index-url --no-header --no-annotate --group build \
	--extra embedded --extra review --extra artifacts --extra encryption

lock: $(BIN)/uv
	$(LOCK) --output-file requirements.lock
	$(LOCK) --output-file requirements-dev.lock --extra dev --constraint requirements.lock
	$(OWN_LOCK) tests/peers/requirements.in --output-file tests/peers/requirements.lock
	@set -e; for name in $(ADAPTERS); do echo "locking tests/adapters/$$name"; \
		$(LOCK) tests/adapters/$$name/requirements.in --extra dev --constraint requirements-dev.lock \
		--output-file tests/adapters/$$name/requirements.lock; done

OWN_LOCK := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-header --no-annotate

clean:
	rm -rf .venv .venv-* build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis \
		.import_linter_cache

# What every process of the stack imports, compiled once here: a start then takes 0.7 s of a core
# instead of 1.9, and ten processes start at once.
COMMON_IMPORTS := ops.cli, tasks.celery, celery.apps.worker, celery.apps.beat, flower.command, openai

define INSTALL
@echo "installing $< into .venv"
@$(BIN)/uv pip install --quiet --require-hashes --requirement $<
@$(BIN)/uv pip install --quiet --no-deps --no-build-isolation --editable .
@env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -c 'import $(COMMON_IMPORTS)'
@touch $@
endef

.venv/run.ok: requirements.lock pyproject.toml | $(BIN)/uv
	$(INSTALL)

.venv/dev.ok: requirements-dev.lock pyproject.toml | $(BIN)/uv
	$(INSTALL)
	@touch .venv/run.ok

# What does not belong beside the product has an environment of its own: .venv-NAME from
# tests/NAME/requirements.lock.
.venv-%/ok: tests/%/requirements.lock | $(BIN)/uv
	@echo "installing $< into .venv-$*"
	@test -x .venv-$*/bin/python || $(PYTHON) -m venv --without-pip .venv-$*
	@VIRTUAL_ENV=$(CURDIR)/.venv-$* $(BIN)/uv pip sync --quiet --require-hashes $<
	@touch $@

.venv-adapters/%/run.ok: tests/adapters/%/requirements.lock pyproject.toml | $(BIN)/uv
	@echo "installing $< into .venv-adapters/$*"
	@test -x .venv-adapters/$*/bin/python || $(PYTHON) -m venv --without-pip .venv-adapters/$*
	@export VIRTUAL_ENV=$(CURDIR)/.venv-adapters/$*; $(BIN)/uv pip sync --quiet --require-hashes $< && \
		$(BIN)/uv pip install --quiet --no-deps --no-build-isolation --editable .
	@env -u PYTHONDONTWRITEBYTECODE .venv-adapters/$*/bin/python \
		-c 'import $(COMMON_IMPORTS), pytest, examples.adapters.$*'
	@touch $@

# uv is put in last, so its presence means a complete .venv. One that this rule did not make is kept
# when something fails.
$(BIN)/uv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "Onward needs Python 3.11 or later, and '$(PYTHON)' is not: install one and name it," >&2; \
		echo "for example: make $(MAKECMDGOALS) PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
		echo "'$(PYTHON)' cannot make virtual environments. On Debian and Ubuntu:" >&2; \
		echo "    sudo apt install python3-venv" >&2; exit 1; }
	@echo "making .venv with $$($(PYTHON) --version)"
	@test -d .venv && fresh= || fresh=.venv; \
	{ $(PYTHON) -m venv .venv && $(BIN)/python -m pip install --quiet uv==$(UV_VERSION); } || { \
		rm -rf $$fresh; echo "could not set up .venv (see above); nothing was left behind" >&2; exit 1; }
