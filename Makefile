# Savanna: every common task is one word. `make help` lists them.
#
# SAVANNA_NO_INSTALL=1  installs nothing; says what is missing instead
# CRATE=streams         restricts `make test` to the crates whose name contains the word
# SEEDS=1000            seeds per scenario in `make soak` and `make suites`
# PARTS="keys faces"    runs these parts of `make suites` (tools/suites names them)
# SECONDS_EACH=60       how long `make fuzz` runs each target

SHELL := /bin/bash
CARGO ?= cargo
PROFILE_DIR := $(or $(CARGO_TARGET_DIR),target)
PYTHON := .venv/bin/python
EXTENSION := extensions/bullfrog/Cargo.toml
export PGRX_PG_CONFIG_PATH ?= /usr/lib/postgresql/15/bin/pg_config
SEEDS ?= 2000
SECONDS_EACH ?= 60

.DEFAULT_GOAL := help

.PHONY: help run test suites soak fuzz fmt lint bench package build-deps extension-deps test-deps suites-deps bench-deps clean-data

help: ## list the tasks
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build-deps: ## install what the build needs (compiler tools from Debian)
	@tools/install build

extension-deps: ## install what the PostgreSQL extension is built against (PostgreSQL 15, libclang)
	@tools/install build extension

test-deps: ## install what the tests need (etcd, psql, PostgreSQL, DuckDB, an S3 server, a broker of Kafka)
	@tools/install build extension test

suites-deps: ## install what the long tests need besides (Go, Node.js, a JDK and Maven, PostgreSQL 16 and 18)
	@tools/install build extension test suites

bench-deps: ## install what the benchmarks need besides what tests do (pgbouncer)
	@tools/install build extension test bench

run: build-deps ## build and watch a streaming query over an auction print its windows
	@echo "building savanna (the first time takes some minutes) ..." >&2
	@$(CARGO) build --locked --workspace --all-features --bin savanna # what `make test` builds first
	@$(PROFILE_DIR)/debug/savanna nexmark demo --seconds 10

test: test-deps ## units, laws, simulation at 100 seeds, one smoke per face with a real client
	@tools/test $(CRATE)

suites: suites-deps ## conformance, differential, drivers, chaos; writes tests/RESULTS.md
	@tools/suites $(PARTS)

soak: test-deps ## thousands of seeds and crash storms
	@SEEDS=$(SEEDS) tools/soak

fuzz: build-deps ## coverage-guided fuzzing of everything that reads bytes from outside (cargo-fuzz)
	@tools/fuzz $(SECONDS_EACH)

fmt: ## format the code
	@$(CARGO) fmt --all
	@$(CARGO) fmt --all --manifest-path $(EXTENSION)

lint: extension-deps ## formatting, clippy without warnings, licences and sources of dependencies
	@$(CARGO) fmt --all --check
	@$(CARGO) fmt --all --check --manifest-path $(EXTENSION)
	@$(CARGO) clippy --locked --workspace --all-targets --all-features -- -D warnings
	@$(CARGO) clippy --locked --workspace --all-targets --manifest-path $(EXTENSION) -- -D warnings
	@$(CARGO) check --manifest-path fuzz/Cargo.toml
	@tools/lint-versions
	@if $(CARGO) deny --version >/dev/null 2>&1; then $(CARGO) deny --offline check licenses bans sources; \
	  else echo "cargo-deny is not installed: cargo install --locked cargo-deny" >&2; fi

bench: bench-deps ## run the benchmarks of bench/ (see bench/METHOD.md)
	@tools/bench

package: build-deps extension-deps ## a tarball with the binary, and .debs of the PostgreSQL extension, in dist/
	@tools/package
	@tools/package-extension
