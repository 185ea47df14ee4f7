# Everything a checkout needs. Each target sets up what it lacks by itself: Python 3.11 or newer and make are enough.
#
#   make PYTHON=/path/to/python3      use this Python, not the first fitting one that tools/find-python finds
#   make test PYTEST='tests/limits'   hand these arguments to pytest (`-n0`: in one process)
#   make test SERVICES=no             install no server, browser or generator; tests that lack one are left out
#   make image BUILD_IMAGE='docker build'

PYTHON ?= $(shell tools/find-python)
PYTHON_3_13 ?= $(shell tools/find-python 3.13)
PYTEST ?=
SERVICES ?= yes
BENCH ?=
BUILD_IMAGE ?= podman build --format=docker
SOAK_S ?= 3600

PIP_INSTALL = -m pip install --quiet --disable-pip-version-check
LOCK = .venv-lock/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-emit-find-links --no-emit-package stoplist-addresses --no-emit-package stoplist-client \
	--custom-compile-command 'make lock' $(UPGRADE)

# A file of tests stays in one process, so that what a module shares is made once. tests/conftest.py says which files begin.
RUN_TESTS = -m pytest --dist loadfile --no-loadscope-reorder
# More processes than processors: part of the time they wait for programs to end, for time limits, for the disk; most of
# all in the long rounds. Those prove what the code does, not what the interpreter does: they run on one Python.
PROCESSORS := $(shell getconf _NPROCESSORS_ONLN)
PROCESSES := $(shell echo $$((3 * $(PROCESSORS) / 2)))
QUICK = -n $(PROCESSES) -m 'not slow'
INTERPRETER = -n $(PROCESSES) -m 'interpreter and not slow'
SLOW = -n $(shell echo $$((3 * $(PROCESSORS)))) -m slow
# The tests that run on each kind of database. Those of the doctor have settings of their own.
APART = $(addprefix tests/,unsubscribes records lists rights proof links organizations notices audit maintenance staff \
	oauth web cli) --ignore=tests/maintenance/doctor

# Without compiled files every process of the tests and every server that they start compiles what it imports.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help install serve client test test-all test-rest test-3.13 test-apart services check import-kills soak bench reference lock \
	dist image clean

help:  ## show these lines
	@sed -n 's/^\([a-z0-9.-]*\):[^#]*## */\1|/p' $(MAKEFILE_LIST) | while IFS='|' read -r name text; do \
		printf '  make %-10s %s\n' "$$name" "$$text"; done

install: .venv/.installed  ## make .venv with the stoplist command in it

serve: .venv/.installed  ## run the server over TLS with a demo organization and key (development)
	@.venv/bin/stoplist serve --demo

client: .venv-client/.client  ## make .venv-client with the stoplist-client command and package in it, for partners
	@echo 'The client is in .venv-client: . .venv-client/bin/activate'

test: .venv/.development services  ## run the tests of every rule, on both databases
	.venv/bin/python $(RUN_TESTS) $(QUICK) $(PYTEST)

test-all: test test-rest  ## run test, then the long rounds, then on Python 3.13 what meets the interpreter

test-rest: .venv/.development services  ## run what test-all adds to test
	.venv/bin/python $(RUN_TESTS) $(SLOW) $(PYTEST)
	@if .venv/bin/python -c 'import sys; sys.exit(sys.version_info >= (3, 13))'; then \
		$(MAKE) --no-print-directory test-3.13 TESTS_3_13="$(INTERPRETER)"; fi

test-3.13: TESTS_3_13 = $(QUICK)
test-3.13: services  ## run on Python 3.13 all that make test runs (at night, and before a release)
	@if [ -z "$(PYTHON_3_13)" ]; then echo 'Left out: Python 3.13 is not at hand.'; [ -z "$$CI" ]; else \
		$(MAKE) --silent .venv-3.13/.development && \
		.venv-3.13/bin/python $(RUN_TESTS) $(TESTS_3_13) $(PYTEST); fi

test-apart: .venv/.development services  ## run the tests of operations with the feeds apart (at night, and before a release)
	TEST_FEEDS_APART=1 .venv/bin/python $(RUN_TESTS) $(QUICK) -k apart $(APART) $(PYTEST)

services: .venv/.development  ## install what tests use and this machine lacks: browser, servers, generators (SERVICES=no: do not)
	@tools/get-browser .venv/bin/python $(SERVICES)
	@tools/get-generators .venv/bin/python $(SERVICES)
	@tools/get-services $(SERVICES)

check: .venv/.development  ## format, lint, types, layers, documentation, then all tests
	.venv/bin/ruff format --check .
	.venv/bin/ruff check .
	.venv/bin/mypy
	.venv/bin/lint-imports --no-logo
	.venv/bin/python -m pytest --quiet tests/house/test_documentation.py
	@$(MAKE) --no-print-directory test

import-kills: .venv/.development  ## kill an import of 300 000 rows 200 times, by command and by page (an hour)
	TEST_IMPORT_KILLS=200 TEST_IMPORT_ROWS=300000 .venv/bin/python -m pytest -n0 -m slow --timeout 0 -k kills \
		tests/cli/test_import_faults.py tests/e2e/test_import_takeover.py

soak: .venv/.development services  ## load and random faults of stores and workers for SOAK_S seconds (an hour); what a server holds stays flat
	TEST_SOAK_S=$(SOAK_S) .venv/bin/python -m pytest -n0 -s -m slow tests/e2e/test_soak.py

bench: .venv/.development  ## measure the real server against bare applications, in the same run
	.venv/bin/python -m bench $(BENCH)

reference: .venv/.development  ## write docs/client-reference.md anew, from the docstrings
	.venv/bin/python tools/client_reference.py

lock: .venv-lock/.installed  ## write the lock files anew (UPGRADE=--upgrade takes newer versions)
	$(LOCK) pyproject.toml -o requirements/runtime.txt
	$(LOCK) --group build -o requirements/build.txt
	$(LOCK) --group lock -o requirements/lock.txt
	$(LOCK) client/pyproject.toml -c requirements/runtime.txt -o requirements/client.txt
	$(LOCK) pyproject.toml --group build --group development -c requirements/runtime.txt -c requirements/client.txt \
		-o requirements/development.txt

dist: .venv/.development  ## build the last commit into dist/: wheels, source archives, requirements, SBOMs, checksums
	@.venv/bin/python -m tools.release dist

image: dist  ## build the image stoplist:VERSION from dist/, with podman
	$(BUILD_IMAGE) --tag stoplist:$$(.venv/bin/stoplist --version | cut -d' ' -f2) --file Containerfile .

clean:  ## remove what these targets made
	rm -rf .venv .venv-3.13 .venv-client .venv-lock .npm-packages build dist src/stoplist.egg-info
	rm -rf addresses/build addresses/dist addresses/src/stoplist_addresses.egg-info
	rm -rf client/build client/dist client/src/stoplist_client.egg-info

.venv-3.13/.installed: override PYTHON = $(PYTHON_3_13)
%/.installed: requirements/runtime.txt requirements/build.txt pyproject.toml addresses/pyproject.toml tools/make-venv
	@echo 'Setting up $* …'
	@tools/make-venv $* "$(PYTHON)" requirements/runtime.txt ./addresses .
	@touch $@

# The client is a partner's: a server runs without it, the tests do not.
%/.development: %/.installed requirements/development.txt client/pyproject.toml
	@echo 'Setting up the development tools in $* …'
	@$*/bin/python $(PIP_INSTALL) --require-hashes -r requirements/development.txt
	@$*/bin/python $(PIP_INSTALL) --no-build-isolation --no-deps --editable ./client
	@# Compiles the tests. Several processes that begin with it would all do so.
	@$*/bin/python -m pytest --collect-only -qq >/dev/null || true
	@touch $@

%/.client: requirements/client.txt requirements/build.txt client/pyproject.toml addresses/pyproject.toml tools/make-venv
	@echo 'Setting up $* …'
	@tools/make-venv $* "$(PYTHON)" requirements/client.txt ./addresses ./client
	@touch $@

# Without this make would remove the stamps as intermediate files.
.PRECIOUS: %/.installed %/.development %/.client

.venv-lock/.installed: requirements/lock.txt requirements/build.txt tools/make-venv
	@tools/make-venv .venv-lock "$(PYTHON)" requirements/lock.txt
	@touch $@
