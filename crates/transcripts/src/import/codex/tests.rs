use super::super::{ImportFormat, ImportStep, Imported, read, testing};
use super::UNREADABLE_SUMMARY;

const META: &str = r#"{"timestamp":"2026-01-02T03:04:05.000Z","type":"session_meta","payload":{"id":"00000000-0000-7000-8000-000000000000","cwd":"/w","source":"cli","git":{"branch":"main"}}}"#;

fn item(payload: &str) -> String {
    format!(
        r#"{{"timestamp":"2026-01-02T03:04:05.000Z","type":"response_item","payload":{payload}}}"#
    )
}

fn said(role: &str, text: &str) -> String {
    let kind = if role == "assistant" {
        "output_text"
    } else {
        "input_text"
    };
    item(&format!(
        r#"{{"type":"message","role":"{role}","content":[{{"type":"{kind}","text":"{text}"}}]}}"#
    ))
}

fn event(payload: &str) -> String {
    format!(r#"{{"timestamp":"t","type":"event_msg","payload":{payload}}}"#)
}

fn steps(imported: &Imported<'_>) -> Vec<String> {
    testing::steps(imported, testing::line_of)
}

#[test]
fn items_keep_their_order_and_get_stable_ids() {
    let call = item(r#"{"type":"function_call","name":"shell","arguments":"{}","call_id":"c"}"#);
    let output = item(r#"{"type":"function_call_output","call_id":"c","output":"ok"}"#);
    let usage = event(
        r#"{"type":"token_count","info":{"last_token_usage":{"input_tokens":9,"cached_input_tokens":4,"output_tokens":2}}}"#,
    );
    let context = r#"{"timestamp":"t","type":"turn_context","payload":{"cwd":"/w/x","model":"m"}}"#;
    let text = [
        META,
        &said("user", "# AGENTS.md instructions for /w"),
        &said("user", "hello"),
        context,
        &call,
        &usage,
        &output,
        &said("assistant", "done"),
    ]
    .join("\n");
    let imported = read(None, text.as_bytes());
    assert_eq!(imported.format, Some(ImportFormat::Codex));
    assert_eq!(imported.unrecognized, None);
    assert_eq!(imported.defects, []);
    assert_eq!(steps(&imported), ["2", "3", "5", "7", "8"]);
    let session = &imported.sessions[0];
    assert_eq!((&*session.project_path, &*session.branch), ("/w", "main"));
    let ImportStep::Message(first) = &session.steps[0] else {
        panic!("no message");
    };
    assert!(first.machine_generated);
    let ImportStep::Message(call) = &session.steps[2] else {
        panic!("no message");
    };
    let call = call.decode(call.id.unwrap()).unwrap();
    assert_eq!(call.model.as_deref(), Some("m"));
    let usage = call.usage.unwrap();
    // Of the 9 input tokens, 4 came from the cache.
    assert_eq!((usage.input_tokens, usage.cache_read_tokens), (5, 4));
    assert_eq!(&*call.attributes[0].1, "/w/x");
}

#[test]
fn a_compaction_keeps_the_messages_that_its_history_repeats() {
    let compacted = |message: &str, summary: &str| {
        format!(
            r#"{{"timestamp":"t","type":"compacted","payload":{{"message":"{message}","replacement_history":[{{"role":"user","content":[{{"text":"hello","type":"input_text"}}],"type":"message"}}{summary}]}}}}"#
        )
    };
    let encrypted = r#",{"type":"compaction","encrypted_content":"x"}"#;
    // Only the provider can read an encrypted summary, so a sentence replaces it.
    for (message, summary, problem) in [
        ("A summary", "", None),
        ("", encrypted, Some("has an encrypted summary")),
        ("", "", Some("marks a compaction without a summary")),
    ] {
        let text = [
            META,
            &said("user", "hello"),
            &said("assistant", "yes"),
            &compacted(message, summary),
        ]
        .join("\n");
        let imported = read(None, text.as_bytes());
        let defects = imported.defects.iter();
        let told = defects.map(|defect| defect.problem.split(':').next());
        assert_eq!(
            told.collect::<Vec<_>>(),
            problem.map(Some).into_iter().collect::<Vec<_>>()
        );
        assert_eq!(steps(&imported), ["2", "3", "compacted, kept 2"]);
        let ImportStep::Compacted(one) = &imported.sessions[0].steps[2] else {
            panic!("no compaction");
        };
        let text = if message.is_empty() {
            UNREADABLE_SUMMARY
        } else {
            message
        };
        assert!(one.summary.payload.get().contains(text));
    }
}

#[test]
fn a_rollback_leaves_the_latest_turns() {
    let rollback = event(r#"{"type":"thread_rolled_back","num_turns":2}"#);
    let text = [
        META,
        &said("user", "one"),
        &said("assistant", "1"),
        &said("user", "two"),
        &said("assistant", "2"),
        &said("user", "three"),
        &rollback,
        &said("user", "four"),
    ]
    .join("\n");
    let imported = read(None, text.as_bytes());
    // The turns begin at lines 2, 4 and 6. Without the last two, line 3 is the last message.
    assert_eq!(
        steps(&imported),
        ["2", "3", "4", "5", "6", "back to 3", "8"]
    );
}

#[test]
fn a_compaction_keeps_calls_and_each_of_equal_messages() {
    let call = r#"{"type":"function_call","name":"shell","arguments":"{}","call_id":"c"}"#;
    let output = |text: &str| {
        format!(r#"{{"type":"function_call_output","call_id":"c","output":"{text}"}}"#)
    };
    let message =
        r#"{"type":"message","role":"user","content":[{"type":"input_text","text":"continue"}]}"#;
    let compacted = |summary: &str| {
        let cleared = output("[cleared]");
        format!(
            r#"{{"timestamp":"t","type":"compacted","payload":{{"message":"{summary}","replacement_history":[{message},{message},{call},{cleared}]}}}}"#
        )
    };
    let text = |meta: &str, summary: &str| {
        [
            meta,
            &item(message),
            &said("assistant", "yes"),
            &item(message),
            &item(message),
            &item(call),
            &item(&output("the content")),
            &compacted(summary),
        ]
        .join("\n")
    };
    let file = text(META, "A summary");
    let imported = read(None, file.as_bytes());
    // The lines 2, 4 and 5 are equal, and the history has two of them.
    let expected = ["2", "3", "4", "5", "6", "7", "compacted, kept 4 5 6 7"];
    assert_eq!(steps(&imported), expected);
    // An export without a summary removes messages from the view.
    let own = META.replace("\"source\"", "\"originator\":\"palimpsest\",\"source\"");
    let file = text(&own, "");
    let imported = read(None, file.as_bytes());
    assert_eq!(imported.defects, []);
    assert_eq!(
        steps(&imported),
        ["2", "3", "4", "5", "6", "7", "removed 2 3"]
    );
}
