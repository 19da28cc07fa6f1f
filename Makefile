# The contributor manual. A fresh machine needs Python 3.11, Java 17, make and git; every target brings in the rest.
# Downloads are verified and kept in ~/.cache/headrace (HEADRACE_CACHE) and .venv; nothing listens anywhere but on 127.0.0.1.

PYTHON ?= python3.11
BIN := .venv/bin
READY := .venv/.ready
DEMO := .venv/.demo
SITE := .venv/.site
CLASSES := .venv/headrace-classes/classes.jsa
export PYTHONPATH := dev:tests
export PYTHONUNBUFFERED := 1
# Python compiles what it imports once, not in each of the workers that the tests start.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help audit setup jars system chart image docs lock demo run test unit coverage check format bench scale cases mutations chaos soak production kubernetes clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(or $(wildcard $(READY)),$(DEMO)) ## a shop database under live load, its tables in the lake, REST on 8083; ONCE=1: a minute, then compare
	@$(BIN)/python -m headrace_dev jars kafka connect debezium-postgres lakehouse
	@$(BIN)/python -m headrace_dev demo $(if $(ONCE),--once)

test: setup jars $(CLASSES) $(SITE) ## everything that has to pass: unit, properties, contracts, end to end on the real stack, short lanes
	@$(call in_halves,$(BIN)/pytest -q)
	$(BIN)/pytest -m "not long" --ignore=tests/unit --durations=40 $(SIDE_BY_SIDE)

# The seed of a simulated database means the same history in every run.
test unit coverage soak mutations: export PYTHONHASHSEED := 0

# Two processes, file by file (tests/support/fix_lanes.py): a test that waits for a start or a rebalance leaves its core to others.
SIDE_BY_SIDE := -n 2 --dist loadfile --no-loadscope-reorder

# Few examples of each law.
unit: export HYPOTHESIS_PROFILE := brief
unit: setup ## the tests that start nothing, laws with few examples (half a minute on two cores)
	@$(call in_halves,$(BIN)/pytest -q)

coverage: setup ## the same tests with all examples, and the ten modules of whose lines and branches they reach the least
	@$(call in_halves,$(BIN)/coverage run -m pytest -q)
	@$(BIN)/coverage combine --quiet
	@echo "coverage: the ten modules of which tests/unit reaches the least; contracts and end-to-end tests are not counted"
	@$(BIN)/coverage report --sort=cover | awk 'NR <= 12 || /^TOTAL/'

# Two processes, each of which collects about half of the tests: xdist's would both collect all.
in_halves = $(1) $(HALF) & half=$$!; $(1) tests/unit $(addprefix --ignore=,$(HALF)); rest=$$?; wait $$half && exit $$rest
HALF := $(addprefix tests/unit/,core config kafka sql cassandra converters transforms)

check: setup ## ruff, mypy strict, the import rules, licenses of what the image contains
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m headrace_dev.licenses

audit: setup jars ## known vulnerabilities of packages and jars, from osv.dev (needs Go for the first time)
	$(BIN)/python -m headrace_dev.audit

format: setup ## let ruff put the code in form
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup jars $(CLASSES) ## Headrace beside a hand-written stream, results checked, and beside Debezium's reselect; QUICK=1: a small load
	$(BIN)/python -m benchmarks.kafka_to_table $(if $(QUICK),--quick)
	$(BIN)/python -m benchmarks.reselect $(if $(QUICK),--quick)

scale: setup jars $(CLASSES) ## curves of what Headrace costs, beside Flink, into docs/performance.md; LANES="commit bulk" for some, QUICK=1: small
	@$(if $(QUICK),,$(UV_INSTALL) --require-hashes -r requirements/readers.txt)
	$(BIN)/python -m benchmarks.scale $(LANES) $(if $(QUICK),--quick,--json docs/performance/scale.json)
	@$(if $(QUICK),,$(BIN)/python -m benchmarks.scale.page)

chaos: setup jars $(CLASSES) ## long lane: kill -9 under load again and again, then compare database and tables
	$(BIN)/pytest -m "chaos" -rA tests

soak: setup jars $(CLASSES) ## long lane: thousands of histories; hours in minutes: pause, resume and steady load with flat memory
	@$(UV_INSTALL) --require-hashes -r requirements/readers.txt
	$(BIN)/pytest -m "long and not chaos and not production and not kubernetes" -rA tests

production: setup jars $(CLASSES) ## long lanes: faults of an object store, upgrades, runbooks, https; what upkeep writes; each under 15 minutes
	$(BIN)/pytest -m "production" -rA tests
	$(BIN)/python -m benchmarks.upkeep

kubernetes: setup jars ## long lanes: the image and the chart in a real Kubernetes. Needs root, Java 21, the programs and images that dev/headrace_dev/kubernetes.py names
	$(BIN)/pytest -m "kubernetes" -rA tests

cases: setup ## each stale-read case of reselect: does its test fail without the rule it is for? NOSTACK=1: no database
	PYTHONPATH=service:connectors:dev:tests $(BIN)/python -m reselect_cases.take_out $(if $(NOSTACK),--no-stack) $(CASES)

mutations: setup ## one-line mutations of the code that decides tables: which tests find each? MUTATIONS="gate: fold:" for some
	PYTHONPATH=service:connectors:dev:tests $(BIN)/python -m mutations.check $(MUTATIONS)

run: setup ## a worker of your own: WORKER=config/worker.properties says where Kafka and the warehouse are
	$(BIN)/headrace connect-distributed $(or $(WORKER),config/worker.properties)

setup: $(READY) ## .venv with the locked packages (runs by itself when the lock changed)

$(READY): requirements/dev.txt pyproject.toml
	$(call install,requirements/dev.txt)

# The packages that the demo needs, for a quick start on a new machine. The complete environment replaces it.
$(DEMO): requirements/demo.txt pyproject.toml
	$(call install,requirements/demo.txt)

# The packages that build the site, without those of the service if these are not needed otherwise.
$(SITE): requirements/docs.txt
	$(call install_packages,requirements/docs.txt)
	@touch $@

# pip installs uv, as the lock pins it, and uv the rest of the lock with less than half of pip's CPU time. It reads UV_*
# variables (a mirror: UV_DEFAULT_INDEX), not pip's configuration. Its cache comes first: where an index sends no cache
# headers, uv would fetch and build Spark's 450 MB again.
define install
	@echo "setup: installing $$(grep -c == $(1)) locked packages into .venv; with empty caches about a minute"
	$(call install_packages,$(1))
	@$(UV_INSTALL) --no-deps --no-build-isolation --editable .
	@touch $@
endef

define install_packages
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@sed -n '/^uv==/,/[^\\]$$/p' $(1) >.venv/uv.txt
	@$(BIN)/python -m pip install --quiet --require-hashes -r .venv/uv.txt
	@$(UV_INSTALL) --offline --require-hashes -r $(1) 2>/dev/null || $(UV_INSTALL) --require-hashes -r $(1)
endef

UV_INSTALL = $(BIN)/uv pip install --quiet --python $(BIN)/python

jars: setup ## Kafka, Connect, Debezium, Apicurio, Iceberg and Delta from Maven Central (once per machine)
	$(BIN)/python -m headrace_dev jars

$(CLASSES): $(READY) dev/headrace_dev/jars.sha256 connectors/headrace_connectors/lakehouse/class_archive.py $(wildcard connectors/headrace_connectors/lakehouse/java/*.jar)
	@echo "classes: archiving the classes of Spark, as the image has them; about a minute"
	@$(BIN)/python -m headrace_dev classes

system: ## Debian's PostgreSQL and Chromium (as root), Helm (where there is Go) and Prometheus; tests that need them are skipped without
	dev/install-postgresql
	dev/install-helm
	dev/install-prometheus
	dev/install-chromium

chart: setup system ## Dockerfile, chart and documentation: hadolint, helm lint and template, Kubernetes' schemas, links
	$(BIN)/pytest -q tests/packaging tests/unit/test_docs.py

image: ## the image headrace:dev (ENGINE=podman for another engine than docker, VARIANT=aws for jars of S3, BASE=image@sha256:...)
	$(or $(ENGINE),docker) build --build-arg VARIANT=$(or $(VARIANT),core) $(if $(BASE),--build-arg BASE=$(BASE)) -t headrace:dev .

docs: $(SITE) ## the documentation as a site: build/site/index.html, which needs no server; a broken link is an error
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict
	@echo "docs: open build/site/index.html in a browser"

lock: setup ## pin anew: requirements/*.txt from pyproject.toml, jars.sha256 from versions.py
	$(BIN)/uv pip compile -q pyproject.toml -o requirements/runtime.txt $(LOCK)
	$(BIN)/uv pip compile -q pyproject.toml --group dev -c requirements/runtime.txt -o requirements/dev.txt $(LOCK)
	$(BIN)/uv pip compile -q pyproject.toml --group demo -c requirements/dev.txt -o requirements/demo.txt $(LOCK)
	$(BIN)/uv pip compile -q --group image -c requirements/dev.txt -o requirements/image.txt $(LOCK)
	$(BIN)/uv pip compile -q --group readers -c requirements/dev.txt -o requirements/readers.txt $(LOCK)
	$(BIN)/uv pip compile -q --group docs -c requirements/dev.txt -o requirements/docs.txt $(LOCK)
	$(BIN)/python -m headrace_dev lock

LOCK := --universal --python-version 3.11 --generate-hashes --no-annotate --custom-compile-command "make lock" $(UPGRADE)

clean: ## remove what the targets made here (not the downloads of the machine)
	rm -rf .venv .logs .demo .coverage* build dist
