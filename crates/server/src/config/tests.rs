use expect_test::{Expect, expect};

use super::*;

fn errors(flags: &Flags, source: &FixedSource, expect: &Expect) {
    let errors = load(flags, source).expect_err("it has mistakes");
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
fn nothing_at_all_is_a_configuration() {
    let loaded = load(&Flags::default(), &FixedSource::default()).unwrap();
    assert_eq!(loaded.config, Config::default());
    assert!(loaded.origins.is_empty() && loaded.warnings.is_empty());
}

#[test]
fn every_mistake_is_reported_at_once() {
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
            the configuration has 12 mistakes:
              p.toml:1: listen must be an address with a port, such as "127.0.0.1:50051", is 50051
              p.toml:2: shutdown is a section: write [shutdown]
              p.toml:5: limits.max_requst_bytes is not a setting: did you mean limits.max_request_bytes?
              p.toml:6: limits.max_messages must be a whole number from 1 to 1000000, is 0
              p.toml:9: log.level must be a level (error, warn, info, debug, trace) or a filter such as "info,h2=debug", is "inof"
              p.toml:10: log.format must be "auto" or "pretty" or "json", is a TOML array
              CLAUDE_CODE_MAX_OUTPUT_TOKENS: policy.budget.output_reserve_tokens must be a whole number from 0 to 1000000000, is "-1"
              PALIMPSEST_ADMIN_LISTEN: admin.listen can be reached by other machines, and nothing asks callers who they are: choose a loopback address such as 127.0.0.1, put a proxy that authenticates in front, or accept it with --insecure-listen-anywhere (PALIMPSEST_INSECURE_LISTEN_ANYWHERE=true)
              PALIMPSEST_GRPC_KEEPALIVE_MS: grpc.keepalive_ms must be a whole number from 1000 to 3600000, is "soon"
              PALIMPSEST_STORE_CACHE_BYTE: is not a variable of any setting: did you mean PALIMPSEST_STORE_CACHE_BYTES?
              --blobs: blobs.url must be a URL, such as "s3://bucket/prefix", is "bucket"
              --set: nonsense is not a setting
            `palimpsest config` lists every setting with its value and where it is set"#]],
    );
}

#[test]
fn a_file_that_is_not_toml_names_its_lines() {
    let (flags, source) = with_file("listen = \n[log\nlevel = \"info\"\n");
    let ConfigErrors(problems) = load(&flags, &source).unwrap_err();
    let lines: Vec<_> = problems.iter().map(|p| p.origin.to_string()).collect();
    assert_eq!(lines, ["p.toml:1", "p.toml:2"]);
}

#[test]
fn a_file_that_is_not_there_names_who_asked_for_it() {
    let source = FixedSource::default().var("PALIMPSEST_CONFIG", "gone.toml");
    errors(
        &Flags::default(),
        &source,
        &expect![[r#"
            the configuration has a mistake:
              PALIMPSEST_CONFIG: failed to read gone.toml: entity not found
            `palimpsest config` lists every setting with its value and where it is set"#]],
    );
}

#[test]
fn settings_that_do_not_go_together_are_refused() {
    let (flags, source) = with_file(
        "listen = \"127.0.0.1:1\"\n\
         admin.listen = \"127.0.0.1:1\"\n\
         limits.max_request_bytes = 2048\n\
         grpc.request_timeout_ms = 3600000\n\
         policy.budget.window_tokens = 32000\n\
         policy.budget.block_buffer_tokens = 20000\n",
    );
    errors(
        &flags,
        &source,
        &expect![[r#"
            the configuration has 5 mistakes:
              p.toml:2: admin.listen is the address of the gRPC services too: give each its own port
              p.toml:3: limits.max_message_bytes is more than limits.max_request_bytes: no such message could arrive
              p.toml:4: grpc.request_timeout_ms is more than grpc.max_request_timeout_ms
              p.toml:5: policy.budget.window_tokens leaves no room: it must be more than output_reserve_tokens + compact_buffer_tokens + warn_buffer_tokens
              p.toml:6: policy.budget.block_buffer_tokens is more than compact_buffer_tokens: requests would be blocked before compaction is due
            `palimpsest config` lists every setting with its value and where it is set"#]],
    );
}

#[test]
fn each_layer_overrides_the_one_below_and_is_remembered() {
    let (flags, source) = with_file(
        "[store]\n\
         cache_bytes = 0x400_0000\n\
         flush_every_ms = 100\n\
         [grpc]\n\
         keepalive_ms = 1000\n\
         [policy.budget]\n\
         output_reserve_tokens = 1\n",
    );
    let source = source
        .var("PALIMPSEST_STORE_FLUSH_EVERY_MS", "150")
        .var("PALIMPSEST_GRPC_KEEPALIVE_MS", "2_000")
        .var("CLAUDE_CODE_MAX_OUTPUT_TOKENS", "8000");
    let flags = flags.with("--set", "grpc.keepalive_ms", Some("3000".into()));
    let loaded = load(&flags, &source).unwrap();
    let config = &loaded.config;
    assert_eq!(config.store.cache_bytes, 0x400_0000);
    assert_eq!(config.store.flush_every_ms, 150);
    assert_eq!(config.grpc.keepalive_ms, 3_000);
    assert_eq!(config.policy.seed.budget.output_reserve_tokens, 8_000);
    let origin = |key| loaded.origin(key).to_string();
    assert_eq!(origin("store.cache_bytes"), "p.toml:2");
    assert_eq!(
        origin("store.flush_every_ms"),
        "PALIMPSEST_STORE_FLUSH_EVERY_MS"
    );
    assert_eq!(origin("grpc.keepalive_ms"), "--set");
    assert_eq!(
        origin("policy.budget.output_reserve_tokens"),
        "CLAUDE_CODE_MAX_OUTPUT_TOKENS"
    );
    assert_eq!(origin("listen"), "default");
}

#[test]
fn our_own_variable_wins_over_that_of_claude_code() {
    let source = FixedSource::default()
        .var("CLAUDE_CODE_MAX_OUTPUT_TOKENS", "8000")
        .var("PALIMPSEST_POLICY_BUDGET_OUTPUT_RESERVE_TOKENS", "9000");
    let loaded = load(&Flags::default(), &source).unwrap();
    assert_eq!(
        loaded.config.policy.seed.budget.output_reserve_tokens,
        9_000
    );
}

#[test]
fn known_variables_without_effect_are_named() {
    let source = FixedSource::default().var("DISABLE_COMPACT", "1");
    let loaded = load(&Flags::default(), &source).unwrap();
    assert_eq!(
        loaded.warnings,
        ["DISABLE_COMPACT is set, and this version does not act on it yet"]
    );
}

#[test]
fn a_kubernetes_service_of_our_name_is_no_mistake() {
    let mut source = FixedSource::default();
    for name in [
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
fn listening_anywhere_can_be_accepted() {
    let source = FixedSource::default()
        .var("PALIMPSEST_LISTEN", "[::]:50051")
        .var("PALIMPSEST_INSECURE_LISTEN_ANYWHERE", "true");
    let loaded = load(&Flags::default(), &source).unwrap();
    assert_eq!(loaded.config.listen.to_string(), "[::]:50051");
}

#[test]
fn what_is_printed_can_be_loaded_again() {
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
    expect![[r#"
        # Where the gRPC services listen.
        listen = "127.0.0.1:50051" # default
        # Allows addresses that other machines can reach although nothing asks callers who they are.
        insecure_listen_anywhere = false # default
        # The folder of the embedded store.
        data_dir = "/var/lib/a b" # --data-dir

        [admin]
        # Where the admin port listens: metrics and health over HTTP.
        listen = "127.0.0.1:50052" # default
    "#]]
    .assert_eq(&start);
}

#[test]
fn a_call_gets_the_deadline_it_asks_for_up_to_the_maximum() {
    let grpc = GrpcConfig::default();
    let seconds = Duration::from_secs;
    assert_eq!(grpc.timeout(None), seconds(60));
    assert_eq!(grpc.timeout(Some(seconds(5))), seconds(5));
    assert_eq!(grpc.timeout(Some(seconds(5_000))), seconds(600));
}
