# What people run. `make test` is all that a change has to pass.

.PHONY: run test lint docs bench tools image deny

# The server, with everything on this machine.
run:
	cargo run --release -- serve

# Installs what is missing, then runs everything: format, lints, tests, documentation, contract.
test: tools lint
	cargo test --workspace --locked
	$(MAKE) docs

lint: tools
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	target/tools/node_modules/.bin/buf lint
	target/tools/node_modules/.bin/buf format -d --exit-code

docs:
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked

# How fast, as ratios to limits that are measured in the same run.
bench:
	cargo bench --locked

tools:
	scripts/install-tools

# Builds the image, runs it and asks it: needs root and Debian, takes ten minutes or more.
image:
	deploy/image-test

# Licences, advisories, duplicates and sources of all dependencies. Not part of `make lint`: cargo-deny takes
# minutes to build, and its list of advisories comes from GitHub. OFFLINE=1 does without that list.
deny:
	command -v cargo-deny >/dev/null || cargo install cargo-deny --locked --version 0.20.2
	cargo deny --locked check bans licenses sources $(if $(OFFLINE),,advisories)
