# What people run. `make test` is all that a change has to pass.

.PHONY: run test lint docs bench peers chaos siege soak scale load fuzz image deny tools

# The server, with everything on this machine.
run:
	cargo run --release -- serve

# Installs what is missing, then runs everything: format, lints, tests, those from end to end on a database too,
# documentation, contract.
test: tools lint
	cargo test --workspace --locked
	PALIMPSEST_TEST_STORE=postgres cargo test --workspace --locked --test e2e
	$(MAKE) docs

lint: tools
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	target/tools/node_modules/.bin/buf lint
	target/tools/node_modules/.bin/buf format -d --exit-code

docs:
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked

# How fast, as ratios to limits that are measured in the same run; target/bench has the figures. Five minutes, or
# `QUICK=1` for all rows in a moment; `ONLY=wire`, `inside`, `start` or `shared` for a part.
bench:
	cargo build --release --locked -p palimpsest-cli -p palimpsest-bench
	PALIMPSEST_TEST_BINARY=$(CURDIR)/target/release/palimpsest target/release/palimpsest-bench $(strip \
		$(if $(QUICK),--quick) $(if $(ONLY),--only $(ONLY)))

# Beside other libraries, on the same conversations: made-up ones, or a folder of Claude Code's transcripts.
# ROUNDS=3, MOST=12 conversations (0 for all) and LIMIT_S=10 seconds for each are what it does without being told.
peers:
	tests/peers/run "$(TRANSCRIPTS)"

# Random schedules of faults and kills, and of full disks, against a release; prints the counts. Then the faults that
# need a certain moment: kills between two renames, two servers on one bucket, PostgreSQL settings that change, a lagging
# standby that takes over, clocks that are wrong. Tests of the whole workspace are built as `make test` builds them, and
# not once more with other features.
SCHEDULES ?= 1000
FULL_DISKS ?= 200
chaos: tools
	cargo build --release --locked
	PALIMPSEST_TEST_BINARY=$(CURDIR)/target/release/palimpsest CHAOS_SCHEDULES=$(SCHEDULES) \
		cargo test --locked --workspace --test chaos -- --nocapture
	DISK_SCHEDULES=$(FULL_DISKS) cargo test --locked --workspace --test disk_full -- --nocapture
	cargo test --locked --workspace --test durable
	PALIMPSEST_TEST_BINARY=$(CURDIR)/target/release/palimpsest \
		cargo test --locked --workspace --test e2e --test scale -- life:: lost:: rows::

# Every attack of tests/siege at once on a release under the limits of the chart, beside an honest tenant; then silent
# TLS handshakes. `ONLY=window_zero` for one attack, `PERCENT=10` for a smaller size, `HANDLES=hard` for a limit of
# 1,024 file handles that the server cannot raise. The attackers need 6,000 file handles themselves.
siege: MINUTES = 5
siege:
	cargo build --release --locked
	ulimit -Sn 6000 && PALIMPSEST_TEST_BINARY=$(CURDIR)/target/release/palimpsest SIEGE_MINUTES=$(MINUTES) \
		SIEGE_ONLY=$(ONLY) SIEGE_PERCENT=$(PERCENT) SIEGE_HANDLES=$(HANDLES) \
		cargo test --locked --workspace --test siege -- --ignored --nocapture --test-threads=1

# The same load for a long time against a release: memory, handles, disk and latency may not drift.
MINUTES ?= 30
soak:
	cargo build --release --locked
	PALIMPSEST_TEST_BINARY=$(CURDIR)/target/release/palimpsest SOAK_MINUTES=$(MINUTES) \
		cargo test --locked --workspace --test soak -- --nocapture

# Servers and workers of a release on one PostgreSQL with a standby, while they are killed, the database is restarted
# and fails over: nothing acknowledged is lost or there twice, and all of them say the same.
scale: tools
	cargo build --release --locked
	PALIMPSEST_TEST_BINARY=$(CURDIR)/target/release/palimpsest SCALE_MINUTES=$(MINUTES) \
		cargo test --locked --workspace --test scale whatever_happens -- --nocapture

# A release under load, with ghz: every call, agents at work, long transcripts, many sessions. Ten minutes, or
# `QUICK=1` for one; `SECONDS=300 ONLY=append-json-1k/open RATE=500` for one run. Report and plots: target/load.
load: tools
	cargo build --release --locked -p palimpsest-cli -p palimpsest-load
	PALIMPSEST_TEST_BINARY=$(CURDIR)/target/release/palimpsest target/release/palimpsest-load $(strip \
		$(if $(QUICK),--quick) $(if $(SECONDS),--seconds $(SECONDS)) $(if $(ONLY),--only $(ONLY)) \
		$(if $(RATE),--rate $(RATE)) $(if $(LIMITS),--limits $(LIMITS)))

# Looks for inputs that break a decoder, a history or a call: every target, led by coverage, on nightly.
# `make fuzz SECONDS=600 TARGETS=rpc` for one of them.
TARGETS ?= anthropic openai transcripts storage documents settings operations rpc
fuzz: tools
	scripts/fuzz $(or $(SECONDS),60) $(TARGETS)

# Builds the image, runs it and asks it: needs root and Debian, takes ten minutes or more.
image:
	deploy/image-test

# Licences, advisories, duplicates and sources of all dependencies. Not part of `make lint`: cargo-deny takes
# minutes to build, and its list of advisories comes from GitHub. OFFLINE=1 does without that list.
deny:
	command -v cargo-deny >/dev/null || cargo install cargo-deny --locked --version 0.20.2
	cargo deny --locked check bans licenses sources $(if $(OFFLINE),,advisories)

tools:
	scripts/install-tools
