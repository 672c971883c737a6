# The commands of this repository. A change must pass `make test`. CONTRIBUTING.md lists all targets.

.PHONY: run test test-all test-packages test-postgres agents litellm kubernetes lint docs bench peers frameworks suites \
	python-versions release-servers chaos siege soak scale load fuzz image dist dist-check deny tools

# Runs the server on this machine with its embedded store.
run:
	cargo run --release -- serve

# Random properties draw the same cases in each run, so a change is rejected only for what it changes. To draw new cases,
# set another number.
export PROPTEST_RNG_SEED ?= 1

# Installs missing tools, then checks the format, the lints, the contract and the documentation, and runs all tests. The
# end-to-end tests run twice: on the embedded store and on PostgreSQL. Tests often wait, so three groups run in parallel.
test: tools lint
	cargo test --workspace --locked --no-run
	$(MAKE) -j3 test-all test-packages test-postgres docs

# All tests, except for those of the next target.
test-all:
	cargo test --workspace --locked -- --skip packages::

# Runs a group of tests beside others, and prints its output at the end.
define beside
	@$(1) >target/$@.log 2>&1; status=$$?; cat target/$@.log; exit $$status
endef

# The tests of the packages in clients/, and the comparison in frameworks.
test-packages:
	$(call beside,cargo test --workspace --locked --test clients packages::)

test-postgres: export PALIMPSEST_TEST_STORE = postgres
test-postgres:
	$(call beside,cargo test --workspace --locked --test e2e)

# Runs released coding agents (Codex, OpenCode, pi, and Claude Code if this machine has it) through a release build, on a
# longer task than `make test`. `ROUNDS=500` sets the number of rounds.
agents: ROUNDS = 200
agents: tools
	cargo build --release --locked
	PALIMPSEST_TEST_BINARY=$(CURDIR)/target/release/palimpsest AGENTS_ROUNDS=$(ROUNDS) AGENTS_CLAUDE=1 \
		cargo test --locked --workspace --test agents -- --nocapture

# Runs LiteLLM's proxy with its compression guardrail in front of the gateway. Installs LiteLLM (550 MB) in
# target/tools/litellm.
litellm: tools
	scripts/install-litellm
	cargo test --locked --workspace --test gateway litellm -- --ignored --nocapture

# Installs, tests, upgrades and removes every example of the chart in a Kubernetes cluster with one node, whose pods run.
# Builds Kubernetes and a container runtime into target/tools/cluster, which takes 15 minutes of processor time the first
# time. Needs root and Debian.
kubernetes: tools
	scripts/install-kubernetes
	cargo test --locked --workspace --test deploy kubernetes:: -- --ignored --nocapture --test-threads=1

lint: tools
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	target/tools/node_modules/.bin/buf lint
	target/tools/node_modules/.bin/buf format -d --exit-code
	cd proto && ../target/tools/api-linter/api-linter --config api-linter.yaml --set-exit-status \
		--output-format summary palimpsest/context/v1/*.proto
	scripts/package-versions

# Examples need the dependencies of tests. With them, the features are those of `lint`, and its dependencies are used again.
docs:
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked --lib --bins --examples

# Measures the performance as ratios to limits that the same run measures. Takes five minutes and writes the figures to
# target/bench. `QUICK=1` shortens all rows. `ONLY=wire`, `inside`, `start`, `shared`, `gateway` or `http` selects a part.
bench:
	cargo build --release --locked -p palimpsest-cli -p palimpsest-bench
	PALIMPSEST_TEST_BINARY=$(CURDIR)/target/release/palimpsest target/release/palimpsest-bench $(strip \
		$(if $(QUICK),--quick) $(if $(ONLY),--only $(ONLY)))

# Compares Palimpsest with other libraries on the same conversations: generated ones, or a folder of Claude Code
# transcripts. Defaults: ROUNDS=3, MOST=12 conversations (0 for all), LIMIT_S=10 seconds per conversation.
peers:
	tests/peers/run "$(TRANSCRIPTS)"

# Builds the servers for tests of frameworks.
release-servers:
	cargo build --release --locked -p palimpsest-cli -p palimpsest-fake-provider
frameworks suites: export PALIMPSEST_BINARY = $(CURDIR)/target/release/palimpsest
frameworks suites: export PALIMPSEST_FAKE_PROVIDER = $(CURDIR)/target/release/palimpsest-fake-provider

# Compares Palimpsest with the context management of agent frameworks: the same agent plays the same tasks in the real
# frameworks against the fake provider. Takes long: tests/frameworks/README.md. `ARGUMENTS="--task code"` selects plays.
frameworks: release-servers
	tests/frameworks/run $(ARGUMENTS)

# Runs the tests of the Python package on each version of Python from 3.10 to 3.13 that this machine has.
python-versions: export PALIMPSEST_BINARY = $(CURDIR)/target/release/palimpsest
python-versions: export PALIMPSEST_FAKE_PROVIDER = $(CURDIR)/target/release/palimpsest-fake-provider
python-versions: release-servers
	clients/python/run-versions

# Runs the tests of LangChain and of the OpenAI Agents SDK, with the adapters of the Python package in their agents.
# Downloads the sources of both.
suites: release-servers
	clients/python/run-suites

# Runs random schedules of faults, kills and full disks against a release build, and prints the counts. Then runs faults
# that need a certain moment: kills between two renames, two servers on one bucket, changed PostgreSQL settings, failover
# to a lagging standby, and wrong clocks. These use the debug build, because release builds have no points to be killed
# at. `--workspace` keeps the features of `make test`, so nothing is built twice.
SCHEDULES ?= 1000
FULL_DISKS ?= 200
chaos: tools
	cargo build --release --locked
	PALIMPSEST_TEST_BINARY=$(CURDIR)/target/release/palimpsest CHAOS_SCHEDULES=$(SCHEDULES) \
		cargo test --locked --workspace --test chaos -- --nocapture
	DISK_SCHEDULES=$(FULL_DISKS) cargo test --locked --workspace --test disk_full -- --nocapture
	cargo test --locked --workspace --test durable
	cargo test --locked --workspace --test blobs bucket_blobs
	cargo test --locked --workspace --test e2e --test scale -- life:: lost_history:: rows::

# Runs every attack of tests/siege at once against a release build with the limits of the chart and an honest tenant.
# Then runs silent TLS handshakes. `ONLY=window_zero` selects one attack, and `PERCENT=10` reduces its size. `HANDLES=hard`
# sets a limit of 1,024 file handles that the server cannot raise. The attackers need 6,000 file handles.
siege: MINUTES = 5
siege:
	cargo build --release --locked
	ulimit -Sn 6000 && PALIMPSEST_TEST_BINARY=$(CURDIR)/target/release/palimpsest SIEGE_MINUTES=$(MINUTES) \
		SIEGE_ONLY=$(ONLY) SIEGE_PERCENT=$(PERCENT) SIEGE_HANDLES=$(HANDLES) \
		cargo test --locked --workspace --test siege -- --ignored --nocapture --test-threads=1

# Runs the same load for a long time against a release build. Memory, file handles, disk and latency must not grow.
MINUTES ?= 30
soak:
	cargo build --release --locked
	PALIMPSEST_TEST_BINARY=$(CURDIR)/target/release/palimpsest SOAK_MINUTES=$(MINUTES) \
		cargo test --locked --workspace --test soak -- --nocapture

# Runs servers and workers of a release build on one PostgreSQL with a standby, and kills them, restarts the database and
# forces failovers. No acknowledged write is lost or duplicated, and all servers return the same data.
scale: tools
	cargo build --release --locked
	PALIMPSEST_TEST_BINARY=$(CURDIR)/target/release/palimpsest SCALE_MINUTES=$(MINUTES) \
		cargo test --locked --workspace --test scale no_acknowledged_write_is_lost_under_faults_and_failovers -- --nocapture

# Runs ghz against a release build: every call, simulated agents, long transcripts and many sessions. Takes ten minutes,
# or one with `QUICK=1`. `SECONDS=300 ONLY=append-json-1k/open RATE=500` selects one run. Writes a report to target/load.
load: tools
	cargo build --release --locked -p palimpsest-cli -p palimpsest-load
	PALIMPSEST_TEST_BINARY=$(CURDIR)/target/release/palimpsest target/release/palimpsest-load $(strip \
		$(if $(QUICK),--quick) $(if $(SECONDS),--seconds $(SECONDS)) $(if $(ONLY),--only $(ONLY)) \
		$(if $(RATE),--rate $(RATE)) $(if $(LIMITS),--limits $(LIMITS)))

# Searches for inputs that break a decoder, a history or a call. Runs every fuzz target with coverage on nightly Rust.
# `make fuzz SECONDS=600 TARGETS=rpc` selects one target.
TARGETS ?= anthropic openai responses transcripts storage documents settings operations rpc streams splices bodies
fuzz: tools
	scripts/fuzz $(or $(SECONDS),60) $(TARGETS)

# Builds the image, runs it and checks it. Needs root and Debian, and takes ten minutes or more.
image:
	deploy/image-test

# Builds what a release publishes into target/dist, and links `dist` to it: static binaries, image, chart, contract,
# packages for Python, TypeScript and Java, SBOM and checksums. Each binary takes about 15 minutes of processor time.
# `PARTS="chart api"` builds some parts. scripts/dist lists the parts and variables, docs/releasing.md the steps of a
# release.
dist:
	scripts/dist $(PARTS)
	ln -sfn target/dist dist

# Verifies target/dist: checksums, archives, a run of the binary, chart, contract, SBOM and images. With `STRICT=1` a
# missing file is an error.
dist-check: tools
	scripts/dist-check

# Checks licenses, advisories, duplicates and sources of all dependencies. Not part of `make lint`, because cargo-deny
# takes minutes to build and downloads its advisories from GitHub. `OFFLINE=1` skips the advisories.
deny:
	command -v cargo-deny >/dev/null || cargo install cargo-deny --locked --version 0.20.2
	cargo deny --locked check bans licenses sources $(if $(OFFLINE),,advisories)

tools:
	scripts/install-tools
