use std::time::Duration;

use expect_test::{Expect, expect};
use palimpsest_core::policy::{Policy, Preset, ToolResultRule};

use crate::*;

fn errors(flags: &Flags, source: &FixedSource, expect: &Expect) {
    let errors = load(flags, source).expect_err("the configuration was accepted");
    expect.assert_eq(&errors.to_string());
}

fn with_file(text: &str) -> (Flags, FixedSource) {
    let flags = Flags {
        file: Some("p.toml".into()),
        ..Flags::default()
    };
    (flags, FixedSource::default().file("p.toml", text))
}

#[test]
fn an_empty_configuration_is_valid() {
    let loaded = load(&Flags::default(), &FixedSource::default()).unwrap();
    assert_eq!(loaded.config, Config::default());
    assert!(loaded.origins.is_empty());
}

#[test]
fn all_errors_are_reported_together() {
    let (flags, source) = with_file(
        "listen = 50051\n\
         shutdown = 5\n\
         \n\
         [limits]\n\
         max_requst_bytes = 1\n\
         max_messages = 0\n\
         \n\
         [log]\n\
         level = \"inof\"\n\
         format = [\"json\"]\n",
    );
    let source = source
        .var("PALIMPSEST_ADMIN_LISTEN", "0.0.0.0:1")
        .var("PALIMPSEST_STORE_CACHE_BYTE", "1")
        .var("PALIMPSEST_GRPC_KEEPALIVE_MS", "soon")
        .var("CLAUDE_CODE_MAX_OUTPUT_TOKENS", "-1");
    let flags = flags
        .with("--blobs", "blobs.url", Some("bucket".into()))
        .with("--set", "nonsense", Some("1".into()));
    errors(
        &flags,
        &source,
        &expect![[r#"
            the configuration has 12 errors:
              p.toml:1: listen must be an address with a port, such as "127.0.0.1:50051", is 50051
              p.toml:2: shutdown is a section: write [shutdown]
              p.toml:5: limits.max_requst_bytes is not a setting: did you mean limits.max_request_bytes?
              p.toml:6: limits.max_messages must be a whole number from 1 to 1000000, is 0
              p.toml:9: log.level must be a level (error, warn, info, debug, trace) or a filter such as "info,h2=debug", is "inof"
              p.toml:10: log.format must be "auto" or "pretty" or "json", is a TOML array
              CLAUDE_CODE_MAX_OUTPUT_TOKENS: policy.autocompact.output_reserve_tokens must be a whole number from 0 to 4294967295, is "-1"
              PALIMPSEST_ADMIN_LISTEN: admin.listen can be reached by other machines, and the admin port has no authentication: choose a loopback address such as 127.0.0.1. If another machine scrapes the metrics, set admin.listen_anywhere = true (the port shows metrics and health, and no message content)
              PALIMPSEST_GRPC_KEEPALIVE_MS: grpc.keepalive_ms must be a whole number from 1000 to 3600000, is "soon"
              PALIMPSEST_STORE_CACHE_BYTE: is not a variable of any setting: did you mean PALIMPSEST_STORE_CACHE_BYTES?
              --blobs: blobs.url must be a URL, such as "s3://bucket/prefix", is "bucket"
              --set: nonsense is not a setting
            `palimpsest config` prints every setting, its value and the origin of the value"#]],
    );
}

#[test]
fn places_that_the_server_cannot_open_are_rejected() {
    let (flags, source) = with_file("[retention]\nexport_url = \"file://exports/old\"\n");
    let flags = flags.with("--blobs", "blobs.url", Some("gs://bucket/x".into()));
    errors(
        &flags,
        &source,
        &expect![[r#"
            the configuration has 2 errors:
              p.toml:2: retention.export_url must be a URL, such as "s3://bucket/prefix", is "file://exports/old": it is not an absolute path on this machine, such as file:///folder
              --blobs: blobs.url must be a URL, such as "s3://bucket/prefix", is "gs://bucket/x": gs is neither file nor s3
            `palimpsest config` prints every setting, its value and the origin of the value"#]],
    );
    for (url, is_valid) in [
        ("ftp://host/x", false),
        ("az://container/x", false),
        ("http://host/x", false),
        ("s3://", false),
        ("s3:///prefix", false),
        ("file://./x", false),
        ("file:///folder", true),
        ("s3://bucket", true),
        ("s3://bucket/a/prefix", true),
    ] {
        for key in ["blobs.url", "retention.export_url"] {
            let flags = Flags::default().with("--set", key, Some(url.into()));
            let loaded = load(&flags, &FixedSource::default());
            assert_eq!(loaded.is_ok(), is_valid, "{key}={url}");
        }
    }
}

#[test]
fn errors_of_addresses_fit_their_setting() {
    for (key, value, expected) in [
        ("otlp.endpoint", "localhost:4317", "http://localhost:4317"),
        (
            "store.postgres.url",
            "postgres://p@db/p?sslmode=verify-full",
            "sslmode is disable, prefer or require",
        ),
        (
            "store.postgres.url",
            "mysql://p@db/p",
            "a database (PostgreSQL)",
        ),
    ] {
        let flags = Flags::default().with("--set", key, Some(value.into()));
        let error = load(&flags, &FixedSource::default()).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[test]
fn settings_of_a_project_name_their_place() {
    let (flags, source) = with_file("[projects.demo.retention]\nexport_url = \"s3://bucket\"\n");
    let flags = flags.with(
        "--set",
        "projects.demo.retention.max_age",
        Some("1d".into()),
    );
    errors(
        &flags,
        &source,
        &expect![[r#"
            the configuration has 2 errors:
              p.toml:2: projects.demo.retention.export_url is not a setting of a project: it is the same for all projects, so set retention.export_url
              --set: projects.demo.retention.max_age cannot be set here: settings of one project belong in the file, such as [projects.NAME.retention]
            `palimpsest config` prints every setting, its value and the origin of the value"#]],
    );
}

#[test]
fn a_syntax_error_names_its_line() {
    let (flags, source) = with_file("listen = \n[log\nlevel = \"info\"\n");
    let ConfigErrors(problems) = load(&flags, &source).unwrap_err();
    let lines: Vec<_> = problems.iter().map(|p| p.origin.to_string()).collect();
    // The parser continues after an error, so one load shows both.
    assert_eq!(lines, ["p.toml:1", "p.toml:2"]);
}

#[test]
fn a_missing_file_names_the_setting_that_requires_it() {
    let source = FixedSource::default().var("PALIMPSEST_CONFIG", "gone.toml");
    errors(
        &Flags::default(),
        &source,
        &expect![[r#"
            the configuration has an error:
              PALIMPSEST_CONFIG: failed to read gone.toml: entity not found
            `palimpsest config` prints every setting, its value and the origin of the value"#]],
    );
}

#[test]
fn conflicting_settings_are_rejected() {
    let (flags, source) = with_file(
        "listen = \"127.0.0.1:1\"\n\
         admin.listen = \"127.0.0.1:1\"\n\
         limits.max_request_bytes = 2048\n\
         grpc.request_timeout_ms = 3600000\n\
         policy.tokens.default_window_tokens = 32000\n",
    );
    errors(
        &flags,
        &source,
        &expect![[r#"
            the configuration has 4 errors:
              p.toml:2: admin.listen is also the address of the gRPC services: use another port
              p.toml:3: limits.max_message_bytes is more than limits.max_request_bytes: a message of this size would be rejected
              p.toml:4: grpc.request_timeout_ms is more than grpc.max_request_timeout_ms: lower it
              p.toml:5: policy.tokens.default_window_tokens is too small: it must be more than autocompact.output_reserve_tokens + compact_buffer_tokens + warn_buffer_tokens
            `palimpsest config` prints every setting, its value and the origin of the value"#]],
    );
}

#[test]
fn each_layer_overrides_the_one_below_and_is_recorded_as_origin() {
    let (flags, source) = with_file(
        "[store]\n\
         cache_bytes = 0x400_0000\n\
         flush_every_ms = 100\n\
         [grpc]\n\
         keepalive_ms = 1000\n\
         [policy.autocompact]\n\
         output_reserve_tokens = 1\n",
    );
    let source = source
        .var("PALIMPSEST_STORE_FLUSH_EVERY_MS", "150")
        .var("PALIMPSEST_GRPC_KEEPALIVE_MS", "2_000")
        .var("CLAUDE_CODE_MAX_OUTPUT_TOKENS", "8000");
    let flags = flags.with("--set", "grpc.keepalive_ms", Some("3000".into()));
    let loaded = load(&flags, &source).unwrap();
    let config = &loaded.config;
    // TOML allows hexadecimal integers and underscores.
    assert_eq!(config.store.cache_bytes, 0x400_0000);
    assert_eq!(config.store.flush_every_ms, 150);
    assert_eq!(config.grpc.keepalive_ms, 3_000);
    let policy = config.policy.server.resolve(Preset::default()).unwrap();
    assert_eq!(policy.autocompact.output_reserve_tokens, 8_000);
    let origin = |key| loaded.origin(key).to_string();
    assert_eq!(origin("store.cache_bytes"), "p.toml:2");
    assert_eq!(
        origin("store.flush_every_ms"),
        "PALIMPSEST_STORE_FLUSH_EVERY_MS"
    );
    assert_eq!(origin("grpc.keepalive_ms"), "--set");
    assert_eq!(
        origin("policy.autocompact.output_reserve_tokens"),
        "CLAUDE_CODE_MAX_OUTPUT_TOKENS"
    );
    assert_eq!(origin("listen"), "default");
}

#[test]
fn palimpsest_variables_override_those_of_claude_code() {
    let source = FixedSource::default()
        .var("CLAUDE_CODE_MAX_OUTPUT_TOKENS", "8000")
        .var(
            "PALIMPSEST_POLICY_AUTOCOMPACT_OUTPUT_RESERVE_TOKENS",
            "9000",
        );
    assert_eq!(
        server_policy(&source).autocompact.output_reserve_tokens,
        9_000
    );
}

fn server_policy(source: &FixedSource) -> Policy {
    let loaded = load(&Flags::default(), source).unwrap();
    let server = &loaded.config.policy.server;
    server.resolve(Preset::default()).unwrap()
}

#[test]
fn variables_of_claude_code_are_accepted_as_settings() {
    let with = |name: &str, value: &str| server_policy(&FixedSource::default().var(name, value));
    let auto = |name: &str, value: &str| with(name, value).autocompact;
    for value in ["1", "true", "YES", "On"] {
        assert!(!auto("DISABLE_COMPACT", value).enabled);
        assert!(!auto("DISABLE_COMPACT", value).manual_enabled);
        let auto = auto("DISABLE_AUTO_COMPACT", value);
        assert!(!auto.enabled && auto.manual_enabled);
        assert!(!with("DISABLE_MICROCOMPACT", value).microcompact.enabled);
        // The variable only disables, so a value that would enable leaves the defaults.
        assert_eq!(with("CLAUDE_AUTO_COMPACT", value), Policy::default());
    }
    for value in ["0", "false", "No", "off", ""] {
        assert_eq!(with("DISABLE_COMPACT", value), Policy::default());
        // An empty variable counts as not set, so it disables nothing.
        let is_said = !value.is_empty();
        assert_eq!(auto("CLAUDE_AUTO_COMPACT", value).enabled, !is_said);
    }
    let share = auto("CLAUDE_AUTOCOMPACT_PCT_OVERRIDE", "62.5");
    assert!(
        share
            .compact_at_percent
            .is_some_and(|share| share.of(1_000) == 625)
    );
    let block = auto("CLAUDE_CODE_BLOCKING_LIMIT_OVERRIDE", "190000");
    assert_eq!(block.block_at_tokens, Some(190_000));
    let reserve = auto("CLAUDE_CODE_MAX_OUTPUT_TOKENS", "8000");
    assert_eq!(reserve.output_reserve_tokens, 8_000);
    // Claude Code reserves at most 20,000 tokens, whatever the output limit.
    let reserve = auto("CLAUDE_CODE_MAX_OUTPUT_TOKENS", "64000");
    assert_eq!(reserve.output_reserve_tokens, 20_000);
}

#[test]
fn an_invalid_variable_of_claude_code_is_an_error() {
    let source = FixedSource::default()
        .var("DISABLE_COMPACT", "maybe")
        .var("CLAUDE_AUTOCOMPACT_PCT_OVERRIDE", "0.5")
        .var("CLAUDE_CODE_BLOCKING_LIMIT_OVERRIDE", "many");
    errors(
        &Flags::default(),
        &source,
        &expect![[r#"
        the configuration has 3 errors:
          CLAUDE_AUTOCOMPACT_PCT_OVERRIDE: policy.autocompact.compact_at_percent must be between 1 and 100
          CLAUDE_CODE_BLOCKING_LIMIT_OVERRIDE: policy.autocompact.block_at_tokens must be a whole number from 0 to 4294967295, is "many"
          DISABLE_COMPACT: must be 1, true, yes or on, or else 0, false, no or off, is "maybe"
        `palimpsest config` prints every setting, its value and the origin of the value"#]],
    );
    let source = FixedSource::default().var("CLAUDE_AUTOCOMPACT_PCT_OVERRIDE", "101");
    errors(
        &Flags::default(),
        &source,
        &expect![[r#"
        the configuration has an error:
          CLAUDE_AUTOCOMPACT_PCT_OVERRIDE: policy.autocompact.compact_at_percent must be between 0 and 100
        `palimpsest config` prints every setting, its value and the origin of the value"#]],
    );
}

#[test]
fn every_field_of_the_policy_is_a_setting() {
    let (flags, source) = with_file(
        "policy.preset = \"claude-code-2.1.19\"\n\
         [policy.microcompact]\n\
         clearable_tools = [\"Read\"]\n\
         time.idle = \"90s\"\n\
         [policy.tool_results.rules]\n\
         Read = { fixed_chars = 10 }\n\
         \"mcp.x\" = { never_persist = true }\n\
         [policy.collapse]\n\
         max_risk = 1\n\
         [projects.p.policy]\n\
         preset = \"opencode\"\n\
         [projects.p.policy.snip]\n\
         nudge = false\n",
    );
    let source = source
        .var("PALIMPSEST_POLICY_SNIP_NUDGE", "true")
        .var(
            "PALIMPSEST_POLICY_MODEL_TOOLS_ENABLED_TOOLS",
            "snip, read-transcript",
        )
        .var(
            "PALIMPSEST_POLICY_TOOL_RESULTS_RULES",
            "{ Read = { declared_chars = 3 } }",
        );
    let flags = flags.with(
        "--set",
        "policy.collapse.target_percent",
        Some("12.5".into()),
    );
    let loaded = load(&flags, &source).unwrap();
    let PolicyConfig { server, projects } = &loaded.config.policy;
    let policy = server.resolve(Preset::default()).unwrap();
    assert_eq!(policy.preset, Preset::ClaudeCode2119);
    assert_eq!(policy.microcompact.clearable_tools, ["Read".into()]);
    assert_eq!(policy.microcompact.time.idle.get(), 90_000);
    let rules = &policy.tool_results.rules;
    // The variable replaces the rule of one tool. The other rules of the file stay.
    assert_eq!(rules["Read"], ToolResultRule::DeclaredChars(3));
    assert_eq!(rules["mcp.x"], ToolResultRule::NeverPersist(true));
    assert!(policy.snip.nudge);
    assert_eq!(policy.model_tools.enabled_tools.len(), 2);
    assert_eq!(policy.collapse.target_percent.of(1_000), 125);
    // A project's overlay is merged into that of the server, as for a new session.
    let mut project = server.clone();
    project.merge(projects.values().next().unwrap());
    let project = project.resolve(Preset::default()).unwrap();
    assert_eq!(project.preset, Preset::OpenCode);
    assert!(!project.snip.nudge);
    let origin = |key| loaded.origin(key).to_string();
    assert_eq!(origin("policy.microcompact.time.idle"), "p.toml:4");
    assert_eq!(origin("policy.snip.nudge"), "PALIMPSEST_POLICY_SNIP_NUDGE");
    assert_eq!(origin("projects.p.policy.snip.nudge"), "p.toml:13");

    // The output is a valid file that loads to the same configuration and the same output.
    let printed = loaded.to_toml();
    let (flags, source) = with_file(&printed);
    let again = load(&flags, &source).unwrap();
    assert_eq!(again.config, loaded.config);
    let from = printed.find("[policy]").unwrap();
    let policy: Vec<_> = printed[from..].lines().collect();
    let picked = |name: &str| {
        let line = policy.iter().find(|line| line.contains(name)).unwrap();
        (*line).to_owned()
    };
    expect![[r#"
        [policy]
        # The preset: the last layer, which provides each field that no other layer sets.
        preset = "claude-code-2.1.19" # p.toml:1

        [policy.limits]
        # Maximum bytes of the content of one message.
        # max_message_bytes = 16777216 # default
        # Maximum messages in one call, including all messages of a `Payload`.
        # max_messages = 10000 # default"#]]
    .assert_eq(&policy[..9].join("\n"));
    let lines = [
        "nudge =",
        "nudge_after_tokens =",
        "Read =",
        "mcp.x",
        "idle =",
        "max_risk =",
    ];
    expect![[r#"
        nudge = true # PALIMPSEST_POLICY_SNIP_NUDGE
        # nudge_after_tokens = 10000 # default
        rules.Read = { declared_chars = 3 } # PALIMPSEST_POLICY_TOOL_RESULTS_RULES
        rules."mcp.x" = { never_persist = true } # p.toml:7
        idle = "90s" # p.toml:4
        max_risk = 1.0 # p.toml:9"#]]
    .assert_eq(&lines.map(picked).join("\n"));
    let project = printed.find("[projects").unwrap();
    expect![[r#"
        [projects.p.policy]
        # The preset: the last layer, which provides each field that no other layer sets.
        preset = "opencode" # p.toml:11

        [projects.p.policy.snip]
        # If true, the view reminds the model to snip when one of the next two limits is reached.
        nudge = false # p.toml:13
    "#]]
    .assert_eq(&printed[project..]);
}

#[test]
fn all_errors_in_policies_are_reported_together() {
    let (flags, source) = with_file(
        "[policy]\n\
         preset = \"best\"\n\
         snip = 3\n\
         colour = 1\n\
         [policy.snipp]\n\
         [policy.collapse]\n\
         max_risk = 2.5\n\
         commit_at_percent = 40\n\
         enabled = \"yes\"\n\
         [policy.microcompact]\n\
         time.idle = \"soon\"\n\
         protected_tools = [1]\n\
         [policy.tool_results.rules]\n\
         Read = { fixed_chars = true }\n\
         [projects.\"a b\".policy]\n\
         [projects.p]\n\
         snip.nudge = true\n\
         [projects.q.policy]\n\
         snip.nugde = true\n\
         collapse.target_percent = 95\n\
         [projects.r]\n",
    );
    let source = source
        .var("PALIMPSEST_POLICY_SNIP_NUDGE", "perhaps")
        .var("PALIMPSEST_POLICY_SNIP_NUGDE", "true")
        .var("PALIMPSEST_PRICES_CACHE_READ", "-1");
    let flags = flags.with("--set", "policy.snip.nugde", Some("1".into()));
    errors(
        &flags,
        &source,
        &expect![[r#"
            the configuration has 18 errors:
              p.toml:2: policy.preset must be "claude-code" or "claude-code-2.1.19" or "opencode" or "threshold" or "economy", is "best"
              p.toml:3: policy.snip is a section: write [policy.snip]
              p.toml:4: policy.colour is not a setting: policy has attachments, autocompact, collapse, economy, hooks, limits, microcompact, model_tools, preset, provider_management, session_memory, snip, summary, tokens, tool_results
              p.toml:5: policy.snipp is not a setting: did you mean policy.snip?
              p.toml:7: policy.collapse.max_risk must be between 0 and 1
              p.toml:9: policy.collapse.enabled must be true or false, is "yes"
              p.toml:11: policy.microcompact.time.idle must be a number of seconds, such as 90s or 0.5s
              p.toml:12: policy.microcompact.protected_tools must be a list of strings, is 1
              p.toml:14: policy.tool_results.rules.Read.fixed_chars is invalid: invalid type: boolean `true`, expected u64
              p.toml:15: projects.a b: may contain only letters, digits, '-', '_' and '.', and must begin with a letter or a digit
              p.toml:17: projects.p.snip is not a setting: a project has sections such as [projects.p.policy]
              p.toml:19: projects.q.policy.snip.nugde is not a setting: did you mean projects.q.policy.snip.nudge?
              p.toml:20: projects.q.policy.collapse.target_percent must be less than commit_at_percent
              p.toml:21: projects.r is a section: write [projects.r.policy]
              PALIMPSEST_POLICY_SNIP_NUDGE: policy.snip.nudge must be true or false, is "perhaps"
              PALIMPSEST_POLICY_SNIP_NUGDE: is not a variable of any setting: did you mean PALIMPSEST_POLICY_SNIP_NUDGE?
              PALIMPSEST_PRICES_CACHE_READ: prices.cache_read must be a number from 0 to 1000000, is "-1"
              --set: policy.snip.nugde is not a setting: did you mean policy.snip.nudge?
            `palimpsest config` prints every setting, its value and the origin of the value"#]],
    );
    let (flags, source) = with_file(
        "[policy.collapse]\n\
         commit_at_percent = 40\n\
         [policy.model_tools]\n\
         max_answer_bytes = 1\n",
    );
    errors(
        &flags,
        &source,
        &expect![[r#"
        the configuration has 2 errors:
          p.toml:2: policy.collapse.target_percent must be less than commit_at_percent
          p.toml:4: policy.model_tools.max_answer_bytes must be at least 1,000
        `palimpsest config` prints every setting, its value and the origin of the value"#]],
    );
}

#[test]
fn a_former_name_is_rejected_with_its_new_name() {
    let (flags, source) = with_file(
        "[worker]\n\
         parallel = 3\n\
         [policy.tool_results]\n\
         preview_bytes = 100\n\
         [projects.p.policy]\n\
         attachments.listings = false\n",
    );
    let source = source.var("PALIMPSEST_SWEEP_GRACE_MS", "86400000");
    let flags = flags.with("--set", "prices.uncached", Some("1".into()));
    errors(
        &flags,
        &source,
        &expect![[r#"
            the configuration has 5 errors:
              p.toml:2: worker.parallel is not a setting: its new name is worker.concurrency
              p.toml:4: policy.tool_results.preview_bytes is not a setting: its new name is policy.tool_results.preview_chars
              p.toml:6: projects.p.policy.attachments.listings is not a setting: its new name is projects.p.policy.attachments.capabilities
              PALIMPSEST_SWEEP_GRACE_MS: is not a variable of any setting: its new name is PALIMPSEST_SWEEP_MIN_AGE_MS
              --set: prices.uncached is not a setting: its new name is prices.input
            `palimpsest config` prints every setting, its value and the origin of the value"#]],
    );
}

#[test]
fn prices_are_parsed_from_integers_and_decimals() {
    let (flags, source) = with_file("[prices]\ninput = 3\ncache_write = 3.75\n");
    let prices = load(&flags, &source).unwrap().config.prices;
    assert_eq!(prices.input.milli(), 3_000);
    assert_eq!(prices.cache_write.milli(), 3_750);
    // The file does not set this price, so it has its default.
    assert_eq!(prices.cache_read.milli(), 100);
}

#[test]
fn variables_of_a_kubernetes_service_are_ignored() {
    let mut source = FixedSource::default();
    for name in [
        // Kubernetes sets such variables in every pod for services named `palimpsest` and `palimpsest-admin`.
        "PALIMPSEST_SERVICE_HOST",
        "PALIMPSEST_SERVICE_PORT",
        "PALIMPSEST_SERVICE_PORT_GRPC",
        "PALIMPSEST_PORT",
        "PALIMPSEST_PORT_50051_TCP",
        "PALIMPSEST_PORT_50051_TCP_ADDR",
        "PALIMPSEST_ADMIN_SERVICE_HOST",
    ] {
        source = source.var(name, "tcp://10.0.0.1:50051");
    }
    assert!(load(&Flags::default(), &source).is_ok());
}

#[test]
fn listening_on_all_interfaces_can_be_allowed() {
    let source = FixedSource::default()
        .var("PALIMPSEST_LISTEN", "[::]:50051")
        .var("PALIMPSEST_INSECURE_LISTEN_ANYWHERE", "true");
    let loaded = load(&Flags::default(), &source).unwrap();
    assert_eq!(loaded.config.listen.to_string(), "[::]:50051");
}

#[test]
fn a_reachable_port_requires_authentication_and_tls() {
    let check = |text: &str, expect: &[&str]| {
        let (flags, source) = with_file(text);
        let keys: Vec<_> = match load(&flags, &source) {
            Ok(_) => Vec::new(),
            Err(ConfigErrors(problems)) => problems.into_iter().filter_map(|it| it.key).collect(),
        };
        assert_eq!(keys, expect, "{text}");
    };
    let far = "listen = \"0.0.0.0:1\"\n";
    let keys = "auth.keys_file = \"k\"\n";
    let tls = "tls.cert_file = \"c\"\ntls.key_file = \"k\"\n";
    check(far, &["listen"]);
    check(&format!("{far}{tls}"), &["listen"]);
    check(&format!("{far}{keys}"), &["listen"]);
    // The exception for unauthenticated callers does not permit credentials without TLS.
    check(
        &format!("{far}{keys}insecure_listen_anywhere = true"),
        &["listen"],
    );
    check(&format!("{far}{keys}auth.allow_plaintext = true"), &[]);
    check(&format!("{far}{keys}{tls}"), &[]);
    check(&format!("{far}insecure_listen_anywhere = true"), &[]);
    let admin = "admin.listen = \"0.0.0.0:2\"\n";
    check(
        &format!("{admin}insecure_listen_anywhere = true"),
        &["admin.listen"],
    );
    check(&format!("{admin}admin.listen_anywhere = true"), &[]);
    check("tls.cert_file = \"c\"", &["tls.key_file"]);
    check("tls.key_file = \"k\"", &["tls.cert_file"]);
    check("tls.client_ca_file = \"c\"", &["tls.client_ca_file"]);
    let both = ["auth.jwt.issuer", "auth.jwt.audience"];
    check("auth.jwt.jwks_file = \"j\"", &both);
    check("auth.jwt.issuer = \"i\"", &both[..1]);
}

#[test]
fn the_gateway_has_an_address_of_its_own_and_upstreams_without_secrets() {
    let (flags, source) = with_file(
        "[gateway]\n\
         enabled = true\n\
         listen = \"0.0.0.0:1\"\n\
         [gateway.upstreams.anthropic]\n\
         base_url = \"https://me:secret@host\"\n\
         [gateway.upstreams.openai]\n\
         base_url = \"https://host/v1?key=secret\"\n",
    );
    errors(
        &flags,
        &source,
        &expect![[r#"
        the configuration has 3 errors:
          p.toml:3: gateway.listen can be reached by other machines, and the gateway has no TLS: choose a loopback address such as 127.0.0.1. If a proxy in front of the gateway has TLS, and callers are authenticated by it or by auth.keys_file, set gateway.listen_anywhere = true
          p.toml:5: gateway.upstreams.anthropic.base_url must be an http or https URL without user name, password, query and fragment, such as "https://api.anthropic.com"
          p.toml:7: gateway.upstreams.openai.base_url must be an http or https URL without user name, password, query and fragment, such as "https://api.anthropic.com"
        `palimpsest config` prints every setting, its value and the origin of the value"#]],
    );
    let (flags, source) = with_file(
        "listen = \"127.0.0.1:1\"\n\
         gateway.enabled = true\n\
         gateway.listen = \"127.0.0.1:1\"\n",
    );
    errors(
        &flags,
        &source,
        &expect![[r#"
        the configuration has an error:
          p.toml:3: gateway.listen is also the address of another port: use another one
        `palimpsest config` prints every setting, its value and the origin of the value"#]],
    );
    // The address of a gateway that is off is not used.
    let (flags, source) = with_file("gateway.listen = \"0.0.0.0:50051\"\n");
    assert!(load(&flags, &source).is_ok());
    let (flags, source) =
        with_file("gateway.upstreams.openai.base_url = \"http://[::1]:8000/api/\"\n");
    let config = load(&flags, &source).unwrap().config;
    assert_eq!(
        config.gateway.upstreams.openai.base_url.as_str(),
        "http://[::1]:8000/api/"
    );
}

#[test]
fn a_key_of_a_provider_has_one_source_and_authenticated_callers() {
    let (flags, source) = with_file(
        "[gateway]\n\
         enabled = true\n\
         listen = \"0.0.0.0:1\"\n\
         listen_anywhere = true\n\
         upstreams.anthropic.api_key_file = \"/run/key\"\n",
    );
    errors(
        &flags,
        &source,
        &expect![[r#"
        the configuration has an error:
          p.toml:3: gateway.listen can be reached by other machines, and the gateway holds the key of a provider, which every caller could use: set auth.keys_file (`palimpsest keys create` creates the file) or auth.jwt.jwks_file, choose a loopback address such as 127.0.0.1, or remove the settings api_key_env and api_key_file of gateway.upstreams
        `palimpsest config` prints every setting, its value and the origin of the value"#]],
    );
    let (flags, source) = with_file("gateway.upstreams.openai.api_key_env = \"sk-secret-1\"\n");
    errors(
        &flags,
        &source,
        &expect![[r#"
        the configuration has an error:
          p.toml:1: gateway.upstreams.openai.api_key_env must be the name of the environment variable with the key, such as "ANTHROPIC_API_KEY", not the key itself
        `palimpsest config` prints every setting, its value and the origin of the value"#]],
    );
    let (flags, source) = with_file(
        "[gateway.upstreams.openai]\napi_key_file = \"/run/key\"\napi_key_env = \"KEY\"\n",
    );
    errors(
        &flags,
        &source,
        &expect![[r#"
        the configuration has an error:
          p.toml:3: gateway.upstreams.openai.api_key_env is set together with gateway.upstreams.openai.api_key_file: remove one of them
        `palimpsest config` prints every setting, its value and the origin of the value"#]],
    );
    let (flags, source) = with_file(
        "gateway.enabled = true\n\
         gateway.upstreams.openai.api_key_env = \"KEY\"\n\
         gateway.upstreams.anthropic.api_key_file = \"/run/key\"\n",
    );
    let gateway = load(&flags, &source).unwrap().config.gateway;
    // The other upstream has its key in a file, so it needs no variable.
    let missing = gateway.missing_keys(|_| false);
    assert_eq!(missing, [("gateway.upstreams.openai.api_key_env", "KEY")]);
    assert!(
        gateway
            .missing_keys(|variable| variable == "KEY")
            .is_empty()
    );
}

#[test]
fn a_printed_configuration_can_be_loaded() {
    let flags = Flags::default()
        .with("--blobs", "blobs.url", Some("s3://b/\"p\"".into()))
        .with("--data-dir", "data_dir", Some("/var/lib/a b".into()));
    let printed = load(&flags, &FixedSource::default()).unwrap();
    let (flags, source) = with_file(&printed.to_toml());
    let again = load(&flags, &source).unwrap();
    assert_eq!(again.config, printed.config);
    let start: String = printed
        .to_toml()
        .lines()
        .take(11)
        .collect::<Vec<_>>()
        .join("\n");
    expect![[r##"
        # all, or, where several processes share a store, server (answers calls) or worker (updates session memory, runs maintenance).
        role = "all" # default
        # The listen address of the gRPC services.
        listen = "127.0.0.1:50051" # default
        # Allows an address that other machines can reach without authentication.
        insecure_listen_anywhere = false # default
        # The directory of the embedded store.
        data_dir = "/var/lib/a b" # --data-dir

        [admin]
        # The listen address of the admin port: metrics and health over HTTP."##]]
    .assert_eq(&start);
}

#[test]
fn a_call_gets_its_requested_deadline_up_to_the_maximum() {
    let grpc = GrpcConfig::default();
    let seconds = Duration::from_secs;
    assert_eq!(grpc.timeout(None), seconds(60));
    assert_eq!(grpc.timeout(Some(seconds(5))), seconds(5));
    assert_eq!(grpc.timeout(Some(seconds(5_000))), seconds(600));
}

#[test]
fn a_model_has_a_provider_a_name_and_one_key() {
    let (flags, source) = with_file(
        "[summarizer]\n\
         model = \"m\"\n\
         base_url = \"https://me:secret-1@gateway\"\n\
         api_key_env = \"sk-secret-2\"\n\
         window_tokens = 5\n\
         [summarizer.fallback]\n\
         provider = \"openai\"\n\
         api_key_env = \"KEY\"\n\
         api_key_file = \"/run/key\"\n",
    );
    errors(
        &flags,
        &source,
        &expect![[r#"
        the configuration has 7 errors:
          p.toml:2: summarizer.model has no effect without summarizer.provider: set it to "anthropic" or "openai"
          p.toml:3: summarizer.base_url must be an http or https URL without a user name and password, such as "https://api.anthropic.com"
          p.toml:4: summarizer.api_key_env must be the name of the environment variable with the key, such as "ANTHROPIC_API_KEY", not the key itself
          p.toml:5: summarizer.window_tokens must be a whole number from 2000 to 100000000, is 5
          p.toml:7: summarizer.fallback.provider has no effect without summarizer.provider: set it to "anthropic" or "openai"
          p.toml:7: summarizer.fallback.model must be set to the name of the model that is called if the main model returns no summary
          p.toml:8: summarizer.fallback.api_key_env is set together with summarizer.fallback.api_key_file: remove one of them
        `palimpsest config` prints every setting, its value and the origin of the value"#]],
    );
    let (flags, source) = with_file("[summarizer.fallback]\nbase_url = \"http://x\"\n");
    let source = source.var("PALIMPSEST_SUMMARIZER_PROVIDER", "anthropic");
    errors(
        &flags,
        &source,
        &expect![[r#"
        the configuration has 2 errors:
          p.toml:2: summarizer.fallback.base_url has no effect without summarizer.fallback.provider: without it, the fallback is another model of the main API
          PALIMPSEST_SUMMARIZER_PROVIDER: summarizer.model must be set to the name of the model that writes summaries
        `palimpsest config` prints every setting, its value and the origin of the value"#]],
    );
}

#[test]
fn no_key_is_printed() {
    let source = FixedSource::default()
        .var("PALIMPSEST_SUMMARIZER_PROVIDER", "anthropic")
        .var("PALIMPSEST_SUMMARIZER_MODEL", "m")
        .var("PALIMPSEST_SUMMARIZER_API_KEY_ENV", "MY_KEY")
        .var("PALIMPSEST_GATEWAY_UPSTREAMS_OPENAI_API_KEY_ENV", "MY_KEY")
        .var("MY_KEY", "secret-3");
    let loaded = load(&Flags::default(), &source).unwrap();
    let text = loaded.to_toml();
    assert!(
        // The name of the variable is printed for both settings, and its value for none.
        text.matches("api_key_env = \"MY_KEY\"").count() == 2 && !text.contains("secret-3"),
        "{text}"
    );
}

#[test]
fn all_errors_in_hook_endpoints_are_reported() {
    let (flags, source) = with_file(
        "[hooks]\n\
         default_endpoint = \"main\"\n\
         endpoints.flat = \"http://x\"\n\
         [hooks.endpoints.audit]\n\
         url = \"ftp://secret-1@host\"\n\
         tokn_env = \"X\"\n\
         max_concurrent = 0\n\
         [hooks.endpoints.lost]\n\
         token_env = \"TOKEN\"\n\
         token_file = \"/run/token\"\n\
         [hooks.endpoints.\"Ä\"]\n\
         url = \"http://x\"\n\
         [policy]\n\
         hooks.endpoint = \"none\"\n",
    );
    errors(
        &flags,
        &source,
        &expect![[r#"
        the configuration has 9 errors:
          p.toml:2: hooks.default_endpoint names an endpoint that is not configured: add [hooks.endpoints.NAME] with its url
          p.toml:3: hooks.endpoints.flat is a section: write [hooks.endpoints.flat]
          p.toml:5: hooks.endpoints.audit.url must be an http or https URL of a host and a port alone, such as "http://127.0.0.1:50061"
          p.toml:6: hooks.endpoints.audit.tokn_env is not a setting of an endpoint: did you mean token_env?
          p.toml:7: hooks.endpoints.audit.max_concurrent must be a whole number from 1 to 10000, is 0
          p.toml:9: hooks.endpoints.lost.url must be set to the address of the hook service
          p.toml:9: hooks.endpoints.lost.token_env is set together with token_file: remove one of them
          p.toml:12: hooks.endpoints.Ä.url is not a valid endpoint: use a name of at most 64 lowercase letters, digits, - and _
          p.toml:14: policy.hooks.endpoint names an endpoint that is not configured: add [hooks.endpoints.NAME] with its url
        `palimpsest config` prints every setting, its value and the origin of the value"#]],
    );
}

#[test]
fn hook_endpoints_of_all_layers_are_merged_and_printed() {
    let (flags, source) = with_file("[hooks.endpoints.audit]\nurl = \"http://127.0.0.1:50061\"\n");
    let source = source
        .var("PALIMPSEST_HOOKS_DEFAULT_ENDPOINT", "audit")
        .var("PALIMPSEST_HOOKS_ENDPOINTS_AUDIT_TOKEN_ENV", "MY_TOKEN")
        .var("MY_TOKEN", "secret-4");
    let flags = flags.with(
        "--set",
        "hooks.endpoints.audit.max_concurrent",
        Some("3".into()),
    );
    let loaded = load(&flags, &source).unwrap();
    let text = loaded.to_toml();
    // `[hooks]` and its endpoints are printed in different places, so each is cut out on its own.
    let hooks = text.split("\n[hooks]\n").nth(1).unwrap();
    let hooks = hooks.split("\n[prices]\n").next().unwrap().to_owned()
        + text
            .split("\n[hooks.endpoints.audit]\n")
            .nth(1)
            .unwrap()
            .split("\n\n")
            .next()
            .unwrap();
    expect![[r##"
        # The endpoint of [hooks.endpoints.NAME] that is called around compactions if a policy names none.
        default_endpoint = "audit" # PALIMPSEST_HOOKS_DEFAULT_ENDPOINT
        # The gRPC address of the service: http for plaintext, https for TLS.
        url = "http://127.0.0.1:50061" # p.toml:2
        # The variable with the token for the service.
        token_env = "MY_TOKEN" # PALIMPSEST_HOOKS_ENDPOINTS_AUDIT_TOKEN_ENV
        # The file with the token. It is read for every call.
        # token_file is not set # default
        # The maximum concurrent calls. Further calls wait until their deadlines.
        max_concurrent = 3 # --set"##]].assert_eq(&hooks);
    assert!(!text.contains("secret-4"));
    let (flags, source) = with_file(&text);
    let again = load(&flags, &source).unwrap();
    assert_eq!(again.config.hooks, loaded.config.hooks);
}
