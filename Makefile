# The two commands that do everything are `make quickstart` and `make test`.
# `make help` lists the rest by what each shows. The work is in tools/ and tests/; this file only names it.

SHELL := /bin/bash
.DEFAULT_GOAL := help

# Suites that are steps of `make test`; test-all runs every other target called test-*.
IN_TEST := test-isolation test-contract test-clients test-execd-clients test-code test-languages test-cli \
    test-mcp test-sdk test-examples test-docker
BEYOND_TEST = $(filter-out $(IN_TEST) test-all,$(shell sed -n 's/^\(test-[a-z-]*\):.*/\1/p' $(firstword $(MAKEFILE_LIST))))

.PHONY: help
help: ## This list.
	@awk -F ':.*## ' '/^##@ /{printf "\n%s\n", substr($$0, 5)} \
	    /^[a-z-]+:.*## /{printf "  make %-19s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

##@ Start here

.PHONY: quickstart
quickstart: ## Install what is missing, build, start a server, run a sandbox, clean up.
	tools/setup run
	$(MAKE) --no-print-directory build
	tools/quickstart

.PHONY: test
test: ## Everything a contributor needs to trust a change.
	tools/setup test
	tools/test

.PHONY: build
build: ## target/release/osb and target/release/execd.
	cargo build --release --locked -p osb -p execd

.PHONY: setup
setup: ## Install what building and testing need.
	tools/setup test

##@ While you work

.PHONY: lint
lint: ## The quick gates: format, tidy, clippy.
	tools/test format tidy clippy

.PHONY: fmt
fmt: ## Format all code.
	cargo fmt --all

.PHONY: specs
specs: ## Write specs/ anew from the types.
	cargo run --locked -q -p api --example specs

.PHONY: sdk-types
sdk-types: ## Write the SDKs' wire types anew from specs/.
	tools/sdk-types

.PHONY: image
image: ## NAME=browser and others of images/ as an archive for `osb server import-image` and `docker load` (root).
	images/build $(or $(NAME),code-interpreter)

.PHONY: fuzz
fuzz: ## Fuzz every parser for a minute.
	tools/fuzz

##@ It has what agents need

.PHONY: test-environments
test-environments: build ## The images browser, desktop, vscode, agents and rl in real sandboxes. Builds them (6 GB, root).
	cargo build --release --locked -p desktop
	tests/environments/run

.PHONY: test-integrations
test-integrations: build ## Agent frameworks, as published and with our adapters, at a real server. Installs them (3 GB, root).
	tests/integrations/run

.PHONY: bench-desktop
bench-desktop: ## Screenshots and actions of the desktop helper beside scrot and xdotool.
	cargo build --release --locked -p desktop
	tests/environments/bench

##@ It keeps hostile code in

.PHONY: test-isolation
test-isolation: ## Hostile programs in real sandboxes, and what they must not be able to do (root).
	cargo build --locked -p execd
	cargo test --locked -p attack --test escape

.PHONY: test-unprotected
test-unprotected: ## Takes each protection away in a build for tests, and shows that its cases fail (root).
	cargo build --locked -p execd
	cargo test --locked --workspace --features attack/unprotected --test escape -- --unprotected

##@ It speaks the published protocol

.PHONY: test-contract
test-contract: ## How our API documents compare with the published protocol.
	cargo test --locked -q --workspace --test contract -- --nocapture

.PHONY: test-clients
test-clients: build ## The published clients against a real server.
	tests/clients/lifecycle/run

.PHONY: test-execd-clients
test-execd-clients: build ## The published SDKs straight against an execd.
	tests/clients/execd/run

.PHONY: test-code
test-code: build ## The published code interpreter at a real server. Needs root.
	tests/clients/code/run

.PHONY: test-languages
test-languages: build ## Six languages in the image code-interpreter, by the published SDKs (root).
	tests/clients/languages/run

.PHONY: test-cli
test-cli: build ## osb in real terminals, and beside the published one.
	tests/cli/run

.PHONY: test-mcp
test-mcp: build ## The MCP server, by the official Python client.
	tests/clients/mcp/run

.PHONY: test-agents
test-agents: build ## Claude Code, Codex and Gemini CLI, set up as docs/agents.md says. Installs them (800 MB).
	tests/clients/agents/run

.PHONY: test-reference
test-reference: ## The Rust SDK at the published server, on a Docker engine of its own (root). Installs it (280 MB).
	cargo build --locked -p execd
	cargo build --locked -p opensandbox --example every_server
	tests/reference/run

##@ Its SDKs and examples work

.PHONY: test-sdk
test-sdk: ## The Rust SDK against a real server. Needs root.
	cargo build --locked -p osb -p execd
	cargo test --locked -p opensandbox --test sdk

.PHONY: test-sdks
test-sdks: build ## Every scenario of sdks/conformance, in every language with recorded results (root).
	sdks/conformance/run $(basename $(notdir $(wildcard sdks/conformance/results/*.json)))
	sdks/python/test --rest
	sdks/typescript/test/run --all
	sdks/csharp/test/run
	sdks/go/test/run --all
	sdks/java/test/run

.PHONY: bench-sdks
bench-sdks: export OSB_BIN = $(abspath $(or $(CARGO_TARGET_DIR),target)/release/osb)
bench-sdks: build ## The SDKs beside the published ones of the same language where those can be had (root).
	@broken=; for language in python typescript csharp go java; do \
	    echo "== $$language"; sdks/$$language/bench/run || broken="$$broken $$language"; \
	done; [ -z "$$broken" ] || { echo "promises are broken, or the benchmark failed:$$broken" >&2; exit 1; }

.PHONY: test-examples
test-examples: build ## Every program of examples/ prints what it says (root).
	tests/examples/run

##@ It runs where you need it

.PHONY: test-docker
test-docker: build ## The Docker backend: its own tests, the suite of all backends, the published clients (root).
	cargo build --locked -p execd
	cargo test --locked -p docker --test docker
	tests/docker/clients

.PHONY: test-docker-habits
test-docker-habits: build ## Everyday `docker run` lines, by a real engine and by osb (root).
	tests/docker/habits
	tests/cli/run test_docker_habits.py

.PHONY: test-kubernetes
test-kubernetes: build ## The Kubernetes backend on a real kubelet: the suite of all backends, all tests of the published clients (root).
	cargo test --locked --workspace --test kubernetes
	tests/kubernetes/clients --all

.PHONY: test-gvisor
test-gvisor: ## The Docker backend with gVisor, which is built with Go and takes minutes the first time (root).
	cargo build --locked -p execd
	OSB_TEST_RUNSC=1 cargo test --locked -p docker --test docker

.PHONY: test-deploy
test-deploy: build ## deploy/ by a systemd, an engine and compose, which is built with Go the first time (root).
	tests/deploy/run
	tests/deploy/compose

.PHONY: test-fresh
test-fresh: ## Set-up, quickstart and every suite's first minute in a bare Debian (root).
	tools/fresh

##@ It is as fast as docs/speed.md says

.PHONY: bench-create
bench-create: build ## How fast sandboxes are made, beside crun and docker. Needs root.
	cargo bench --locked -p runtime --bench create

.PHONY: bench-server
bench-server: build ## How fast the server is, beside what we promise. Needs root.
	cargo bench --locked -p server --bench server

.PHONY: bench-execd
bench-execd: build ## execd beside direct spawns, cat and the kernel.
	cargo bench --locked -p execd --bench execd

.PHONY: bench-code
bench-code: build ## Code contexts beside python3 alone and Jupyter kernels.
	tests/clients/code/bench

.PHONY: bench-docker
bench-docker: build ## The Docker backend beside the bare engine and the embedded runtime (root).
	tests/docker/bench

.PHONY: bench-cli
bench-cli: build ## Start-up time and memory of osb and its MCP server beside the published ones.
	tests/cli/run --collect-only -q >/dev/null
	tests/clients/mcp/run --collect-only -q >/dev/null
	tests/cli/bench

##@ All of it

.PHONY: test-all
test-all: ## `make test`, then every other suite that has a target here; hours, and gigabytes of downloads (root).
	tools/setup all
	tools/test
	$(MAKE) --no-print-directory --keep-going fuzz $(BEYOND_TEST)
