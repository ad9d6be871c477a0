# `make demo` and `make test` set up whatever is missing (system packages, .venv/, the build, the
# installed package) and are quick when nothing is. No step needs a GPU, a driver or nvcc.
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory
SHELL := /bin/bash

bin := .venv/bin
stamps := build/stamps
export PATH := $(CURDIR)/$(bin):$(PATH)
export PIP_DISABLE_PIP_VERSION_CHECK := 1
jobs ?= $(shell nproc)

rooms := cache runtime jit templates python cmake
sources := $(shell find $(rooms) -type f -not -path '*/__pycache__/*') \
  CMakeLists.txt CMakePresets.json pyproject.toml README.md LICENSE
test_sources := $(shell find tests -name '*.cpp' -o -name '*.c' -o -name '*.h' -o -name CMakeLists.txt)
cpp_files = $(shell find $(rooms) tests examples -name '*.h' -o -name '*.c' -o -name '*.cpp' \
  -o -name '*.cuh')
shell_files := $(wildcard scripts/*.sh) .ci/run

.PHONY: help demo test test-all asan tsan mutants mutants-templates replay bench plots docs \
  signatures setup build index format lint clean
help:
	@echo "make demo    the main job: compile, cache, inspect and run kernels (emulated without a GPU)"
	@echo "make test    all suites; of the built-in kernels and mutants a part, by the commit. Without a"
	@echo "             GPU, kernels run on the emulated device alone"
	@echo "make test-all  likewise with all kernels, mutants and template faults: an hour or two"
	@echo "make asan    C++ and C tests under the address and undefined-behaviour sanitizers; make tsan: threads"
	@echo "make mutants mutation testing of every shipped kernel on the emulated device"
	@echo "make mutants-templates  plants known faults in templates/: the nearest tests must fail"
	@echo "make replay  which kernels a change touches, beside HEAD or HEAD^ (or base=COMMIT)"
	@echo "make bench   Kiln beside its peers, short form, into build/bench; needs a GPU"
	@echo "make plots   figures of build/bench/*.json (or results=...) into docs/benchmarks"
	@echo "make docs    docs/api.md from the docstrings, the specs' schema and docs/prewarm.md's tables from"
	@echo "             the operations' fields, the README's figure from docs/performance/"
	@echo "make signatures   what C++, stubs and PyTorch know of the operations, from python/operations.pyi"
	@echo "make setup   system packages, .venv/ with the package and its command kiln"
	@echo "make build   the libraries, the Python module and the C++ tests, in build/dev"
	@echo "make index   compile commands of host code and templates, for clangd and other editors"
	@echo "make format | lint | clean"

demo: $(stamps)/package
	$(bin)/python examples/00_demo.py

test: $(stamps)/ready
	@scripts/run_tests.sh

test-all: $(stamps)/ready
	@scripts/run_tests.sh --full

# All C++ and C tests but the slow ones, which run whole kernels.
asan tsan: $(stamps)/venv
	@cmake --preset $@ --log-level=NOTICE
	@cmake --build --preset $@ -j $(jobs) --target kiln_cpu_tests kiln_compile_tests \
	  kiln_emulator_tests helper_compile c_api c_abi c_norm c_epilogue c_serving c_varlen
	@mkdir -p -m 700 build/$@/test-cache
	@ctest --preset $@ -E '^emulator/(test_kernels_.*|mutants)$$'

mutants: $(stamps)/build
	@build/dev/tests/kiln_mutate

replay: $(stamps)/package
	@$(bin)/python scripts/replay.py $(base) $(args)

mutants-templates: $(stamps)/ready
	@$(bin)/python scripts/plant_faults.py

bench: $(stamps)/package $(stamps)/test_packages $(stamps)/bench_packages
	$(bin)/python bench/run.py --suite all --short --out build/bench

results ?= $(wildcard build/bench/*.json)
plots: $(stamps)/bench_packages
	$(bin)/python bench/plots.py $(results) --out docs/benchmarks

docs: $(stamps)/package $(stamps)/test_packages
	@$(bin)/python scripts/spec_pages.py
	@$(bin)/python scripts/api_page.py
	@$(bin)/python scripts/results_figure.py

signatures: $(stamps)/venv
	@$(bin)/python scripts/signatures.py

setup: $(stamps)/package
build: $(stamps)/build

$(stamps)/venv: scripts/requirements.txt scripts/system_packages.sh
	@scripts/system_packages.sh
	@echo "== .venv: build requirements"
	@test -x $(bin)/python || python3 -m venv .venv
	@$(bin)/python -m pip install -qq -r scripts/requirements.txt
	@mkdir -p $(stamps) && touch $@

# The frameworks whose tensors the tests hand in, ml_dtypes for NumPy's bfloat16, libclang for the
# editors' index, transformers for the models that attend with Kiln (its wheels take 160 MB); the
# package itself needs none of them.
$(stamps)/test_packages: $(stamps)/venv
	@echo "== .venv: PyTorch, JAX, ml_dtypes, libclang and transformers for the tests"
	@$(bin)/python -c 'import torch, jax, ml_dtypes, clang.cindex, transformers' 2>/dev/null || \
	  $(bin)/python -m pip install -qq 'torch==2.13.0' jax 'ml_dtypes>=0.5' 'libclang>=18' \
	  'transformers>=5.17,<6'
	@touch $@

# The wheel is made in build/dev, where the preset compiled the module: nothing compiles twice.
$(stamps)/package: $(stamps)/venv $(sources)
	@echo "== build/dev: the Python module"
	@cmake --preset dev --log-level=NOTICE
	@cmake --build --preset dev -j $(jobs) --target _core
	@echo "== .venv: the package kiln"
	@$(bin)/python -m pip install -qq --no-build-isolation --no-deps --force-reinstall \
	  --config-settings=build-dir=build/dev .
	@touch $@

$(stamps)/build: $(stamps)/package $(test_sources)
	@echo "== build/dev: the libraries and the C++ tests"
	@cmake --build --preset dev -j $(jobs)
	@touch $@

# What tests need. pip, which mostly waits, fills .venv while the C++ tests compile, but not while
# it installs the package.
.PHONY: $(stamps)/ready
$(stamps)/ready: $(stamps)/package
	@$(MAKE) -j 2 $(stamps)/build $(stamps)/test_packages

$(stamps)/lint_packages: $(stamps)/venv scripts/requirements-lint.txt
	@$(bin)/python -m pip install -qq -r scripts/requirements-lint.txt
	@touch $@

$(stamps)/bench_packages: $(stamps)/venv scripts/requirements-bench.txt
	@$(bin)/python -m pip install -qq -r scripts/requirements-bench.txt
	@touch $@

index: $(stamps)/venv
	@cmake --preset dev --log-level=NOTICE
	@cmake -DOUTPUT=build/index -P cmake/index.cmake
	@ln -sf build/dev/compile_commands.json compile_commands.json

format: $(stamps)/lint_packages
	$(bin)/clang-format -i $(cpp_files)
	$(bin)/ruff check --fix .
	$(bin)/ruff format .

lint: $(stamps)/lint_packages
	$(bin)/clang-format --dry-run --Werror $(cpp_files)
	$(bin)/ruff check .
	$(bin)/ruff format --check .
	$(bin)/mypy
	$(bin)/shellcheck $(shell_files)
	$(bin)/python scripts/signatures.py --check

clean:
	rm -rf build
