//! Tests of the fake provider's streams with the stream helpers of the official SDKs.

use palimpsest_fake_provider::FakeProvider;
use serde_json::{Value, json};

use crate::language::Language;

/// The languages whose SDKs are installed for both providers.
const SDKS: [Language; 2] = [Language::Python, Language::TypeScript];
/// The paces by the name of the model. A stream that the SDKs cannot read is a fault of the provider.
const PACES: [(&str, &str); 4] = [
    ("plain", r#"{"delta_bytes": 5}"#),
    (
        "borders",
        r#"{"delta_bytes": 3, "split": "utf8", "crlf": true, "pings": 1}"#,
    ),
    ("bytes", r#"{"split": "byte", "coding": "gzip"}"#),
    (
        "fields",
        r#"{"split": "field", "coding": "deflate", "one_byte_writes": true}"#,
    ),
];

/// Runs the SDKs of a language with these models. Returns the lines of the program.
async fn run(language: Language, provider: &FakeProvider, models: &[&str]) -> Vec<Value> {
    let built = language.build().await;
    let url = provider.url();
    let with_version = format!("{url}/v1");
    let vars = [
        ("ANTHROPIC_API_KEY", "key"),
        ("ANTHROPIC_BASE_URL", url.as_str()),
        ("OPENAI_API_KEY", "key"),
        ("OPENAI_BASE_URL", &with_version),
    ];
    let printed = language.call("streams", &built, models, &vars).await;
    printed
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Returns an answer without ids, nulls and fields that an SDK adds.
fn bare(value: &Value) -> Value {
    const ADDED: [&str; 8] = [
        "id", "call_id", "index", "parsed", "parsed_arguments", "parsed_output", "output_text",
        "_request_id",
    ];
    match value {
        Value::Object(object) => {
            let kept = object
                .iter()
                .filter(|(name, value)| !value.is_null() && !ADDED.contains(&name.as_str()));
            kept.map(|(name, value)| (name.clone(), bare(value)))
                .collect()
        }
        Value::Array(values) => values.iter().map(bare).collect(),
        other => other.clone(),
    }
}

/// Returns the parts of an answer that have the same form in a stream and in one body.
fn content(api: &str, answer: &Value) -> Value {
    let answer = bare(answer);
    match api {
        "messages" => {
            json!([
                answer["content"],
                answer["stop_reason"],
                answer["usage"]["output_tokens"]
            ])
        }
        "chat" => json!([answer["choices"], answer["usage"]]),
        _ => json!([
            answer["output"],
            answer["status"],
            answer["usage"]["output_tokens"]
        ]),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sdks_read_the_same_answer_from_a_stream_and_from_one_body() {
    for language in SDKS {
        let provider = FakeProvider::start().await.unwrap();
        for (model, pace) in PACES {
            let pace: Value = serde_json::from_str(pace).unwrap();
            let turn = json!({
                "thinking": "Grüße brauchen 😀.", "text": "Über 😀, in two parts.",
                "citations": ["it rains", "it snows"], "pace": pace,
                "calls": [
                    {"name": "weather", "input": {"city": "Zürich \\ \"Nord\""}},
                    {"name": "weather", "input": {"city": "Oslo"}},
                ],
            });
            // Each API is called twice.
            let script = json!({"match": {"model": model}, "turns": vec![turn; 6]});
            let script = serde_json::from_value(script).unwrap();
            provider.add_script(script).unwrap();
        }
        let models = PACES.map(|(model, _)| model);
        let lines = run(language, &provider, &models).await;
        assert_eq!(lines.len(), 3 * PACES.len(), "{language:?}");
        for line in &lines {
            let api = line["api"].as_str().unwrap();
            let [streamed, whole] = ["streamed", "whole"].map(|form| content(api, &line[form]));
            assert_eq!(streamed, whole, "{language:?}: {line}");
            let text = whole.to_string();
            assert!(text.contains("Über 😀, in two parts."), "{line}");
            assert!(text.contains("Zürich") && text.contains("Oslo"), "{line}");
            let citations = text.matches("char_location").count();
            assert_eq!(citations, if api == "messages" { 2 } else { 0 }, "{line}");
            let thinks = text.contains("Grüße brauchen 😀.");
            assert_eq!(thinks, api != "chat", "{line}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sdks_report_the_faults_of_a_stream() {
    const MODELS: [&str; 4] = [
        "m+error-event=3", "m+cut-event=3", "m+malformed=3", "m+status=529",
    ];
    for language in SDKS {
        let provider = FakeProvider::start().await.unwrap();
        for line in run(language, &provider, &MODELS).await {
            let failed = &line["streamed"];
            let error = failed["error"].as_str().unwrap_or_default();
            assert!(!error.is_empty(), "{language:?}: {line}");
            // The helpers of Responses report only that the last event is missing.
            if line["model"] == MODELS[0] && line["api"] != "responses" {
                let text = failed["text"].as_str().unwrap_or_default();
                let is_reported =
                    text.contains("Overloaded") || text.contains("server had an error");
                assert!(is_reported, "{language:?}: {line}");
            }
        }
    }
}
