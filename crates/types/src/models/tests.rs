//! Tests of the table: names as people write them, overrides, and the consistency of the data file.

use std::collections::BTreeSet;

use serde_json::json;

use super::*;

fn window(name: &str) -> Option<u32> {
    ModelTable::builtin().find(name)?.window_tokens
}

fn entry(value: serde_json::Value) -> ModelEntry {
    ModelEntry::from_json(value).unwrap()
}

#[test]
fn a_model_is_found_by_every_usual_spelling() {
    let cases = [
        ("claude-sonnet-4-5", 200_000),
        ("claude-sonnet-4-5-20250929", 200_000),
        ("claude-sonnet-4-5-latest", 200_000),
        ("claude-sonnet-4-5@20250929", 200_000),
        ("claude-sonnet-4-5[1m]", 200_000),
        ("Claude-Sonnet-4-5 ", 200_000),
        // Routers put the maker before the name and write the version with a dot.
        ("anthropic/claude-sonnet-4.5", 200_000),
        ("anthropic/claude-sonnet-4.5:beta", 200_000),
        ("openrouter/anthropic/claude-sonnet-4.5:thinking", 200_000),
        // Amazon Bedrock adds the maker, a version, and a region or an ARN.
        ("anthropic.claude-sonnet-4-5-20250929-v1:0", 200_000),
        ("us.anthropic.claude-sonnet-4-5-20250929-v1:0", 200_000),
        (
            "bedrock/converse/eu.anthropic.claude-sonnet-4-5-20250929-v1:0",
            200_000,
        ),
        (
            "arn:aws:bedrock:us-east-1:123456789012:inference-profile/global.anthropic.claude-sonnet-4-5-20250929-v1:0",
            200_000,
        ),
        ("vertex_ai/claude-opus-4-6@default", 1_000_000),
        ("databricks-claude-opus-4-6", 1_000_000),
        ("claude-opus-5-5", 1_000_000),
        ("gpt-4o", 128_000),
        ("gpt-4o-2024-08-06", 128_000),
        ("openai/gpt-4o-mini", 128_000),
        ("azure/gpt-4o", 128_000),
        // OpenAI's name of a fine-tuned model.
        ("ft:gpt-4o-2024-08-06:acme::abc123", 128_000),
        ("gpt-4.1-mini-2025-04-14", 1_047_576),
        ("gpt-4", 8_192),
        ("gpt-5-codex", 400_000),
        ("gpt-5-2025-08-07", 400_000),
        ("gpt-5-chat-latest", 128_000),
        ("gpt-5.1-codex-max", 400_000),
        ("gpt-5.4", 1_050_000),
        ("codex-mini-latest", 200_000),
        ("o3-mini-2025-01-31", 200_000),
        ("models/gemini-2.5-pro", 1_048_576),
        ("google/gemini-2.5-flash", 1_048_576),
        ("gemini-2.5-flash-preview-05-20", 1_048_576),
        ("gemini-2.5-flash-image-preview", 32_768),
        ("publishers/google/models/gemini-3-pro-preview", 1_048_576),
        ("gpt-oss:20b", 131_072),
        ("openai.gpt-oss-120b-1:0", 131_072),
        ("meta-llama/Llama-3.3-70B-Instruct", 128_000),
        ("us.meta.llama3-3-70b-instruct-v1:0", 128_000),
        ("meta.llama3-70b-instruct-v1:0", 8_192),
        ("llama3.1:8b", 128_000),
        (
            "accounts/fireworks/models/llama-v3p1-405b-instruct",
            128_000,
        ),
        ("accounts/fireworks/models/deepseek-v3p1", 128_000),
        ("deepseek/deepseek-r1:free", 65_536),
        ("us.deepseek.r1-v1:0", 65_536),
        ("deepseek-chat", 131_072),
        ("qwen/qwen3-coder:free", 262_144),
        ("Qwen/Qwen2.5-Coder-32B-Instruct", 32_768),
        ("qwen3-coder-plus", 1_000_000),
        ("mistral-large-latest", 262_144),
        ("mistral.mistral-large-2407-v1:0", 128_000),
        ("moonshotai/Kimi-K2-Instruct-0905", 262_144),
        ("z-ai/glm-4.6", 200_000),
        ("x-ai/grok-4-fast", 2_000_000),
    ];
    for (name, expected) in cases {
        assert_eq!(window(name), Some(expected), "{name}");
    }
}

#[test]
fn an_unknown_model_is_not_confused_with_a_known_one() {
    for name in [
        "",
        " ",
        "my-deployment",
        "gpt-4-something",
        "gpt-5.9",
        "gpt-4o-realtime-preview",
        "claude-sonnet-9",
        "claude-sonnet-4-9",
        "o9",
        "foo-o3",
        "deepseek-r1-distill-llama-70b",
        "us.anthropic.",
        "ft:",
        "latest",
        "-v",
        "::",
        "gpt-4ö",
    ] {
        assert_eq!(ModelTable::builtin().find(name), None, "{name}");
    }
}

#[test]
fn the_most_specific_pattern_wins() {
    let spec = |name: &str| ModelTable::builtin().find(name).unwrap();
    // An older version has an entry of its own, with a lower output.
    assert_eq!(spec("gpt-4o").max_output_tokens, Some(16_384));
    assert_eq!(spec("gpt-4o-2024-05-13").max_output_tokens, Some(4_096));
    assert_eq!(spec("claude-sonnet-5").cache.min_tokens, Some(1_024));
    assert_eq!(spec("claude-sonnet-5-5").cache.min_tokens, Some(512));
    let table = ModelTable::with_entries(vec![
        entry(json!({"names": ["acme-*"], "window_tokens": 1})),
        entry(json!({"names": ["acme-large-*"], "window_tokens": 2})),
        entry(json!({"names": ["acme-*-2"], "window_tokens": 3})),
        entry(json!({"names": ["*acme-large-*"], "window_tokens": 4})),
    ]);
    let window = |name: &str| table.find(name).and_then(|spec| spec.window_tokens);
    assert_eq!(window("acme-small"), Some(1));
    // `acme-*-2` has seven literal bytes, and `acme-*` has five.
    assert_eq!(window("acme-small-2"), Some(3));
    // Of two equal ones, the first.
    assert_eq!(window("acme-large-2"), Some(2));
    assert_eq!(window("our-acme-large-9"), Some(4));
}

#[test]
fn a_configured_entry_replaces_what_it_states() {
    let table = ModelTable::with_entries(vec![
        entry(json!({"names": ["claude-*"], "window_tokens": 1_000_000})),
        entry(json!({"names": ["gpt-5"], "prices": {"input": 1}, "cache": {"min_tokens": 9}})),
        entry(json!({"names": ["gpt-5.1"], "window_tokens": 300_000})),
        entry(json!({"names": ["*"], "window_tokens": 32_000, "max_output_tokens": 4_000})),
    ]);
    let builtin = |name: &str| ModelTable::builtin().find(name).unwrap();
    // Even a less specific pattern comes before the data file, and the other properties stay.
    let sonnet = table.find("anthropic/claude-sonnet-4.5").unwrap();
    assert_eq!(sonnet.window_tokens, Some(1_000_000));
    assert_eq!(sonnet.prices, builtin("claude-sonnet-4-5").prices);
    assert_eq!(sonnet.cache, builtin("claude-sonnet-4-5").cache);
    let five = table.find("gpt-5").unwrap();
    assert_eq!(five.window(), builtin("gpt-5").window());
    let prices = five.prices.unwrap();
    assert_eq!(
        (prices.input, prices.output),
        (UsdPerMillion::new(1.0), None)
    );
    assert_eq!(
        (five.cache.min_tokens, five.cache.markers),
        (Some(9), Some(CacheMarkers::Automatic))
    );
    // A configured window has no input limit of another window.
    assert_eq!(builtin("gpt-5.1").max_input_tokens, Some(272_000));
    assert_eq!(table.find("gpt-5.1").unwrap().max_input_tokens, None);
    // `*` alone is for unknown models.
    assert_eq!(
        table.find("my-deployment").unwrap().window_tokens,
        Some(32_000)
    );
    assert_eq!(table.find("gpt-4o"), ModelTable::builtin().find("gpt-4o"));
    assert_eq!(table.find(""), None);
}

#[test]
fn an_invalid_entry_is_rejected_with_its_field() {
    let error = |value| {
        let error = ModelEntry::from_json(value).unwrap_err();
        (error.path, error.message)
    };
    let names = json!(["a"]);
    // An empty path means that the entry as a whole is invalid.
    for (value, path, message) in [
        (
            json!({"names": []}),
            "",
            "names must have at least one name",
        ),
        (json!({"window_tokens": 5}), "", "missing field `names`"),
        (
            json!({"names": names, "window_tokens": 0}),
            "window_tokens",
            "expected a nonzero u32",
        ),
        (
            json!({"names": names, "window": 5}),
            "window",
            "unknown field `window`",
        ),
        (
            json!({"names": names, "max_input_tokens": 5}),
            "",
            "without window_tokens",
        ),
        (json!({"names": [""]}), "names[0]", "1 to 256 bytes"),
        (
            json!({"names": names, "window_tokens": 5, "max_input_tokens": 6}),
            "",
            "must not be more than window_tokens",
        ),
        (
            json!({"names": names, "prices": {"input": -1}}),
            "prices.input",
            "0 to 1000000 dollars",
        ),
        (
            json!({"names": names, "cache": {"markers": "some"}}),
            "cache.markers",
            "unknown variant",
        ),
    ] {
        let (at, told) = error(value);
        assert!(at == path && told.contains(message), "{at}: {told}");
    }
}

#[test]
fn an_entry_survives_its_json() {
    for entry in &BUILTIN.entries {
        let json = serde_json::to_value(entry).unwrap();
        assert_eq!(
            ModelEntry::from_json(json.clone()).unwrap(),
            *entry,
            "{json}"
        );
    }
}

#[test]
fn a_long_input_has_its_own_prices() {
    let spec = ModelTable::builtin().find("claude-sonnet-4-5").unwrap();
    let input = |tokens| spec.prices_for(tokens).unwrap().input.unwrap().dollars();
    assert!((input(200_000) - 3.0).abs() < f64::EPSILON);
    assert!((input(200_001) - 6.0).abs() < f64::EPSILON);
    assert_eq!(
        UsdPerMillion::new(0.003_625).map(UsdPerMillion::micros),
        Some(3_625)
    );
}

#[test]
fn the_data_file_is_consistent() {
    assert_eq!(ModelTable::date().len(), "2026-11-27".len());
    let mut known = BTreeSet::new();
    for entry in &BUILTIN.entries {
        let (spec, first) = (&entry.spec, entry.names[0].as_str());
        for name in &entry.names {
            assert!(
                known.insert(name.as_str()),
                "{} occurs twice",
                name.as_str()
            );
            // A name without `*` is found by itself. Otherwise another pattern hides its entry.
            if !name.as_str().contains('*') {
                let found = ModelTable::builtin().find(name.as_str());
                assert_eq!(
                    found.as_ref(),
                    Some(spec),
                    "{} finds another entry",
                    name.as_str()
                );
            }
        }
        let window = spec
            .window_tokens
            .unwrap_or_else(|| panic!("{first} has no window"));
        assert!(
            spec.max_output_tokens.is_none_or(|most| most <= window),
            "{first}"
        );
        let Some(prices) = spec.prices else { continue };
        assert!(
            prices.input.is_some() && prices.output.is_some(),
            "{first} has half of its prices"
        );
        assert!(
            prices.cache_read <= prices.input,
            "{first} pays more for a read than for new input"
        );
        assert!(
            prices.cache_write_long.is_none() || spec.cache.ttls_s.len() > 1,
            "{first}"
        );
        if spec.cache.markers == Some(CacheMarkers::None) {
            assert_eq!(
                (prices.cache_read, prices.cache_write),
                (None, None),
                "{first}"
            );
        }
        if let Some(long) = spec.long_prices {
            assert!(
                long.prices.input >= prices.input && long.prices.output >= prices.output,
                "{first}"
            );
        }
    }
}
