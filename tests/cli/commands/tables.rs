//! Blocks that need more than their text: exceptions, preparations and replaced values.

/// Blocks that this test does not run: the reason, and the page and the first words of each block. An empty page stands
/// for every page.
pub(super) const NOT_RUN: &[(&str, &[(&str, &str)])] = &[
    (
        "The test must not build. blocks.rs checks the targets of make.",
        &[
            ("", "cargo build"),
            ("", "cargo test"),
            ("", "cargo run --release -p"),
            ("", "make"),
        ],
    ),
    (
        "Changes the repository, or needs a release. No test runs these commands.",
        &[("", "cargo update"), ("", "git tag"), ("", "gh release")],
    ),
    (
        "Needs root and Docker. `make image` runs the image with another program.",
        &[
            ("", "docker"),
            ("docs/install.md", "scripts/dev-secrets\nsudo"),
        ],
    ),
    (
        "Needs a cluster. tests/deploy and `make kubernetes` test the chart, not these commands.",
        &[
            ("", "helm"),
            ("", "kubectl"),
            ("docs/backup.md", "palimpsest keys create"),
        ],
    ),
    (
        "Needs registries or the network. The `run-tests` of the packages build and install them.",
        &[
            ("", "git clone"),
            ("", "(cd ../palimpsest"),
            ("", "go mod"),
            ("", "mvn"),
            ("", "python3 -m venv"),
        ],
    ),
    (
        "compare.test.ts of the TypeScript package runs these programs.",
        &[("", "node target/"), ("", "ROUNDS=100 node")],
    ),
    (
        "Needs registries. tests/clients runs the programs of the page with its own stubs.",
        &[("", "npm init"), ("", "npx buf"), ("", "PYTHONPATH=gen")],
    ),
    (
        "Needs an agent. tests/agents runs agents, also with MCP, and run.rs selects upstreams.",
        &[
            ("", "claude mcp add"),
            ("README.md", "cargo run --release -- run -- npx"),
            ("docs/agents.md", "palimpsest run -- claude"),
            ("docs/agents.md", "palimpsest run --upstream"),
            ("docs/gateway.md", "ANTHROPIC_BASE_URL"),
        ],
    ),
    (
        "demo.rs runs the demo.",
        &[("README.md", "cargo run --release -- demo")],
    ),
    (
        "`make litellm` runs LiteLLM.",
        &[("docs/compression.md", "PALIMPSEST_API_KEY=plk_")],
    ),
    (
        "tests/gateway runs the collector with the file of this command.",
        &[("docs/traces.md", "otelcol")],
    ),
    (
        "grpcurl is not installed. No test runs this command.",
        &[("docs/operations.md", "grpcurl")],
    ),
    (
        "The provider is on the internet. No test runs this command.",
        &[("docs/gateway.md", "curl -i")],
    ),
    (
        "Needs Citus. tests/scale/sharded.rs runs this command where Citus is installed.",
        &[("docs/postgres.md", "palimpsest schema apply --distributed")],
    ),
];

/// Imports the transcript that pages call `my-session`.
const SERVE_AND_IMPORT: &str =
    "palimpsest serve\npalimpsest import ~/.claude/projects/my-project/my-session.jsonl";
/// The same with the data folder that pages of operators use.
const SERVE_VAR_AND_IMPORT: &str = "export PALIMPSEST_DATA_DIR=/var/lib/palimpsest
    palimpsest serve
    palimpsest import ~/.claude/projects/my-project/my-session.jsonl";
/// Writes a configuration file with a database.
pub(super) const USE_POSTGRES: &str = "stop
    echo \"store.postgres.url = '$POSTGRES_URL'\" > palimpsest.toml
    echo \"blobs.url = 'file://$WORLD/blobs'\" >> palimpsest.toml";
const USE_RETENTION: &str = "stop
    echo \"retention.max_age = '90d'\" > palimpsest.toml";

/// Writes the first request of an MCP client, which usually starts `palimpsest mcp`.
const WRITE_INITIALIZE: &str = r#"echo '{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
    "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}
    }}' | tr -d '\n' > initialize.json; echo >> initialize.json"#;

/// Continues the transcript with a compaction, after which the agent reads a file that the user named before.
const ADD_COMPACTION: &str = r#"cd ~/.claude/projects/my-project
sed -i 's|why it fails|why src/step.c fails|' my-session.jsonl
cat >> my-session.jsonl <<'END'
{"type": "system", "subtype": "compact_boundary", "parentUuid": null, \
 "uuid": "00000000-0000-4000-8000-000000000090", "timestamp": "2026-01-01T02:00:00.000Z"}
{"type": "user", "isCompactSummary": true, "parentUuid": "00000000-0000-4000-8000-000000000090", \
 "uuid": "00000000-0000-4000-8000-000000000091", "timestamp": "2026-01-01T02:00:01.000Z", \
 "message": {"role": "user", "content": "A step fails."}}
{"type": "assistant", "parentUuid": "00000000-0000-4000-8000-000000000091", \
 "uuid": "00000000-0000-4000-8000-000000000092", "timestamp": "2026-01-01T02:00:02.000Z", \
 "message": {"role": "assistant", "id": "msg_c", "model": "m", "content": [{"type": "tool_use", \
 "id": "toolu_z", "name": "Read", "input": {"file_path": "src/step.c"}}]}}
END
cd - > /dev/null"#;

/// State that the page supposes before a block: page, first words of the block, and commands. The command `stop` stops
/// the servers. Each entry applies once.
pub(super) const BEFORE: &[(&str, &str, &str)] = &[
    (
        "docs/access.md",
        "palimpsest serve",
        "export PALIMPSEST_TLS_CERT_FILE=tls.crt PALIMPSEST_TLS_KEY_FILE=tls.key",
    ),
    (
        "docs/access.md",
        "palimpsest keys rotate",
        "export KEY_ID=$(palimpsest keys list --keys-file keys.toml | grep -o '[0-9a-f]\\{16\\}')",
    ),
    (
        // A restart loads the new key at once, without the delay of a reload.
        "docs/access.md",
        "export PALIMPSEST_API_KEY",
        "export API_KEY=$(palimpsest keys create --keys-file keys.toml --label x \\
            --project default --right read)
        palimpsest serve --set auth.keys_file=keys.toml",
    ),
    ("docs/backup.md", "palimpsest backup", SERVE_VAR_AND_IMPORT),
    (
        "docs/backup.md",
        "palimpsest restore --from /var/backups/palimpsest --data-dir /var/lib",
        "stop\nrm -r /var/lib/palimpsest",
    ),
    ("docs/export.md", "palimpsest export", SERVE_AND_IMPORT),
    (
        // `my-session` fits into its window, so that no compaction is due.
        "docs/guide.md", "palimpsest recall", ADD_COMPACTION,
    ),
    ("docs/http.md", "curl", "palimpsest serve"),
    (
        "docs/inspector.md",
        "palimpsest sessions",
        "palimpsest serve",
    ),
    (
        "docs/inspector.md",
        "grep",
        "export PALIMPSEST_API_KEY=$(palimpsest keys create --keys-file keys.toml --label x \\
            --project default --right read,write,admin)
        export KEY_ID=$(palimpsest keys list --keys-file keys.toml | grep -o '[0-9a-f]\\{16\\}')
        palimpsest serve --set auth.keys_file=keys.toml \\
            --set audit.file=/var/log/palimpsest/audit.jsonl
        palimpsest import ~/.claude/projects/my-project/my-session.jsonl
        palimpsest sessions delete my-session --yes
        stop",
    ),
    (
        // The page asks for a terminal without the variables of the production example.
        "docs/install.md",
        "palimpsest config",
        "stop\nunset PALIMPSEST_URL PALIMPSEST_TLS_CA PALIMPSEST_API_KEY",
    ),
    (
        "docs/load-balancing.md",
        "palimpsest health",
        "palimpsest serve",
    ),
    ("docs/mcp.md", "curl", SERVE_AND_IMPORT),
    ("docs/mcp.md", "palimpsest mcp", WRITE_INITIALIZE),
    (
        "docs/operations.md",
        "palimpsest retention",
        SERVE_AND_IMPORT,
    ),
    ("docs/operations.md", "palimpsest retention", USE_RETENTION),
    ("docs/postgres.md", "palimpsest schema apply", USE_POSTGRES),
    (
        "docs/postgres.md",
        "palimpsest serve",
        "export PALIMPSEST_TLS_CERT_FILE=tls.crt PALIMPSEST_TLS_KEY_FILE=tls.key",
    ),
    (
        "docs/postgres.md",
        "palimpsest migrate",
        "stop\nunset PALIMPSEST_TLS_CERT_FILE PALIMPSEST_TLS_KEY_FILE
        palimpsest serve --data-dir /var/lib/palimpsest
        palimpsest import ~/.claude/projects/my-project/my-session.jsonl
        stop",
    ),
    (
        "docs/retention.md",
        "palimpsest sessions delete",
        SERVE_VAR_AND_IMPORT,
    ),
    ("docs/retention.md", "palimpsest retention", USE_RETENTION),
    (
        "docs/upgrade.md",
        "palimpsest config",
        "palimpsest config > palimpsest.toml",
    ),
    ("docs/upgrade.md", "palimpsest health", "palimpsest serve"),
    ("docs/upgrade.md", "palimpsest schema", USE_POSTGRES),
];

/// Texts that a page cannot know, and their values in a world. Ports are replaced by those of the running server.
pub(super) const REPLACED: &[(&str, &str)] = &[
    ("1f0c6a2be9d34a57", "$KEY_ID"),
    ("'\"who\":\"key 25281fc4c8e495fa\"'", "\"key $KEY_ID\""),
    ("PALIMPSEST_API_KEY=…", "PALIMPSEST_API_KEY=$API_KEY"),
    ("palimpsest.example.com:50051", "localhost:50051"),
    ("server-0:50051", "localhost:50051"),
    (
        "https://grpc.palimpsest.example.com:443",
        "http://localhost:50051",
    ),
    // The command ends with its input.
    ("--allow-snip", "--allow-snip < initialize.json"),
    // Absolute folders of the pages are folders of the world.
    (" /var/", " $WORLD/var/"),
    ("=/var/", "=$WORLD/var/"),
    (" /tmp/", " $WORLD/tmp/"),
];

/// Blocks of output that equal the output of the block before them: page and first words.
pub(super) const EQUAL_OUTPUT: &[(&str, &str)] = &[
    ("docs/postgres.md", "the tables in the schema palimpsest"),
    ("docs/retention.md", "projects/default/sessions/my-session"),
];
