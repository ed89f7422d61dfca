# Everything sets itself up in .venv: `make demo` and `make test` need only make and Python 3.11 or newer.
#   PYTHON=python3.12  which interpreter makes the environment
#   ARGS='-k ports'    passed on: to pytest by `test`, to the benchmark by `bench`, to the runs of `soak` and `fuzz`

SHELL := /bin/sh
VENV  ?= .venv
PY    := $(VENV)/bin/python
STAMP := $(VENV)/.installed
ARGS  ?=

# Tried by running them: a shim of a version manager may exist without an interpreter behind it.
CANDIDATES := python3.13 python3.12 python3.11 python3 python3.14 python
IS_NEW     := import sys; sys.exit(sys.version_info < (3, 11))
PYTHON     ?= $(shell for p in $(CANDIDATES); do "$$p" -c '$(IS_NEW)' >/dev/null 2>&1 && { echo "$$p"; break; }; done)

# What the tests of capture, namespaces and the link check need from the system, as program:package.
TOOLS := tcpdump:tcpdump tshark:tshark ip:iproute2 nft:nftables unshare:util-linux \
         nc.openbsd:netcat-openbsd nc.traditional:netcat-traditional ncat:ncat

.PHONY: help demo test lint bench soak fuzz fixtures install clean tools

help:
	@echo 'make demo      server, client and capture on this machine, in a few seconds'
	@echo 'make test      all tests; as root also those that capture and make namespaces'
	@echo 'make lint      ruff, mypy and the walls between the floors'
	@echo 'make bench     side by side with other programs'
	@echo 'make soak      ten minutes at full rate, watched for what grows'
	@echo 'make fuzz      captures cut and changed at will, until interrupted'
	@echo 'make fixtures  write the captures in fixtures/ and their truth again'
	@echo 'make install   ncps for this user, or for all as root (PREFIX=...)'
	@echo 'make clean     remove the environment and all caches'

demo: $(STAMP)
	@$(VENV)/bin/ncps demo

test: $(STAMP) tools
	@$(PY) -m pytest $(ARGS)

lint: $(STAMP)
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/ruff format --check .
	@$(VENV)/bin/mypy
	@$(VENV)/bin/lint-imports

bench: $(STAMP)
	@$(PY) benchmarks/run.py $(ARGS)

soak: $(STAMP)
	@$(PY) benchmarks/soak.py $(ARGS)

fuzz: $(STAMP)
	@$(PY) tests/capture/fuzzing.py $(ARGS)

fixtures: $(STAMP)
	@$(PY) fixtures/make.py

# ---- environment --------------------------------------------------------------------------------------------

$(STAMP): pyproject.toml
	@[ -n '$(PYTHON)' ] || { echo 'make: no Python 3.11 or newer found: install one, or say PYTHON=/path/to/python3' >&2; exit 1; }
	@'$(PYTHON)' -c '$(IS_NEW)' || { echo 'make: $(PYTHON) is not Python 3.11 or newer' >&2; exit 1; }
	@'$(PYTHON)' -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo 'make: $(PYTHON) cannot make environments: install its venv package (Debian, Ubuntu: apt install python3-venv)' >&2; exit 1; }
	@$(PY) -c '' 2>/dev/null || '$(PYTHON)' -m venv $$([ ! -f '$(VENV)/pyvenv.cfg' ] || echo --clear) '$(VENV)'
	@$(PY) -m pip install --quiet --disable-pip-version-check --upgrade pip
	@$(PY) -m pip install --quiet --disable-pip-version-check --editable . --group test --group lint
	@touch $@

# As root on Debian and its kin what is missing is installed; elsewhere the tests that need it say so.
tools:
	@missing=''; for t in $(TOOLS); do command -v "$${t%%:*}" >/dev/null 2>&1 || missing="$$missing $${t#*:}"; done; \
	if [ -n "$$missing" ] && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then \
	  echo "installing$$missing"; \
	  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing; } >/dev/null \
	    || echo "make: could not install$$missing; the tests that need them will say so" >&2; \
	fi

PREFIX ?= $(shell [ "$$(id -u)" = 0 ] && echo /usr/local || echo "$$HOME/.local")

install:
	@[ -n '$(PYTHON)' ] || { echo 'make: no Python 3.11 or newer found: install one, or say PYTHON=/path/to/python3' >&2; exit 1; }
	@'$(PYTHON)' -m venv --clear '$(PREFIX)/lib/ncps-raw'
	@'$(PREFIX)/lib/ncps-raw/bin/python' -m pip install --quiet --disable-pip-version-check .
	@mkdir -p '$(PREFIX)/bin'
	@ln -sf ../lib/ncps-raw/bin/ncps '$(PREFIX)/bin/ncps'
	@echo 'installed $(PREFIX)/bin/ncps'

clean:
	[ ! -f '$(VENV)/pyvenv.cfg' ] || rm -rf '$(VENV)'
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
