# gpuparse: make demo, make test. Everything is installed into .venv, once, and again when pyproject.toml changes.

PYTHON        ?= python3
VENV          ?= .venv
TORCH_VERSION ?= 2.13.0
JOBS          ?= 2

PY  := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check --quiet

# The C++ compiler: what CXX names, else the first of these there is (make's own default for CXX says nothing).
ifeq ($(origin CXX),default)
  COMPILERS := c++ g++ clang++
else
  COMPILERS := $(firstword $(CXX))
endif
find-compiler = for c in $(COMPILERS); do command -v "$$c" >/dev/null 2>&1 && exit 0; done

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo test check exhaustive lint bench fuzz clean distclean compiler compiler-wanted

help:
	@echo "make demo       train a parser on the built-in treebank, parse, evaluate, draw (a minute or two): files in demo/"
	@echo "make test       every check: format, types, layers, tests"
	@echo "make check      the same with the quick tests only: a minute and a half"
	@echo "make exhaustive random instances by the thousand against all structures (minutes)"
	@echo "make lint       make test without the tests"
	@echo "make bench      the table of figures"
	@echo "make fuzz       random input by the hundred thousand, counted (hours; FUZZ=\"conllu --count 1000\": a part)"
	@echo "make clean      remove caches, build outputs and demo/ (distclean: the .venv too)"
	@echo
	@echo "Settings: PYTHON=$(PYTHON) TORCH_VERSION=$(TORCH_VERSION) JOBS=$(JOBS) CXX=<compiler>"

demo: compiler-wanted $(VENV)/.installed-demo
	@$(PY) -m gpuparse.demo

test: compiler lint
	@echo "==> pytest"
	@$(PY) -m pytest -q -n $(JOBS)

check: compiler lint
	@echo "==> pytest, the quick ones"
	@$(PY) -m pytest -q -n $(JOBS) -m "not slow and not emulated and not exhaustive"

exhaustive: compiler $(VENV)/.installed-test
	@$(PY) -m pytest -q -n $(JOBS) -m exhaustive

lint: $(VENV)/.installed-test
	@echo "==> ruff check"
	@$(PY) -m ruff check
	@echo "==> ruff format --check"
	@$(PY) -m ruff format --check
	@echo "==> mypy"
	@$(PY) -m mypy
	@echo "==> lint-imports"
	@$(VENV)/bin/lint-imports

bench: compiler-wanted $(VENV)/.installed-bench
	@$(PY) -m bench run first_order

fuzz: compiler-wanted $(VENV)/.installed-test
	@$(PY) fuzz/run.py --processes $(JOBS) $(FUZZ)

clean:
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis demo
	find . -path ./$(VENV) -prune -o -name __pycache__ -type d -exec rm -rf {} +

distclean: clean
	rm -rf $(VENV)

compiler:
	@($(find-compiler); \
	  echo "gpuparse: needs a C++ compiler; not found: $(COMPILERS) (install g++ or clang++, or set CXX)" >&2; exit 1)

compiler-wanted:
	@($(find-compiler); \
	  echo "gpuparse: no C++ compiler ($(COMPILERS)): the slower plain torch path will be used" >&2)

EXTRAS_demo  :=
EXTRAS_test  := [test]
EXTRAS_bench := [bench]

# One line for what is missing; then torch by itself, at one version (any in pyproject.toml's range will do, and
# one already in the environment is kept); then the package and its extras in one resolver call.
$(VENV)/.installed-%: pyproject.toml
	@command -v "$(PYTHON)" >/dev/null 2>&1 || \
	  { echo "gpuparse: needs Python 3.10 or newer; not found: $(PYTHON) (install it, or set PYTHON)" >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "gpuparse: needs Python 3.10 or newer; $(PYTHON) is $$("$(PYTHON)" -V 2>&1) (set PYTHON)" >&2; exit 1; }
	@"$(PYTHON)" -c 'import ensurepip, venv' 2>/dev/null || \
	  { echo "gpuparse: $(PYTHON) lacks the venv module (on Debian and Ubuntu: install python3-venv)" >&2; exit 1; }
	@test -e "$(VENV)" || { echo "==> making $(VENV)"; "$(PYTHON)" -m venv "$(VENV)"; }
	@$(PY) -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null || \
	  { echo "gpuparse: $(VENV) is no environment of Python 3.10 or newer (make distclean removes it)" >&2; exit 1; }
	@$(PIP) --version >/dev/null 2>&1 || $(PY) -m ensurepip >/dev/null
	@$(PY) -c 'import torch; v = tuple(map(int, torch.__version__.split(".")[:2])); assert (2, 6) <= v < (2, 14)' \
	  2>/dev/null || \
	  { echo "==> installing torch $(TORCH_VERSION) (minutes, the first time)"; \
	    $(PIP) install "torch==$(TORCH_VERSION)" || \
	    { echo "gpuparse: torch $(TORCH_VERSION) could not be installed (TORCH_VERSION= takes any in 2.6 to 2.13)" >&2; \
	      exit 1; }; }
	@echo "==> installing gpuparse$(EXTRAS_$*)"
	@$(PIP) install -e '.$(EXTRAS_$*)' || { echo "gpuparse: pip could not install gpuparse$(EXTRAS_$*)" >&2; exit 1; }
	@touch $(VENV)/.installed-demo $@
