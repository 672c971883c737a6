//! Tests of the importer on synthetic lines.

use super::*;
use palimpsest_core::ids::Timestamp;

const A: &str = "00000000-0000-4000-8000-00000000000a";
const B: &str = "00000000-0000-4000-8000-00000000000b";
const C: &str = "00000000-0000-4000-8000-00000000000c";
const D: &str = "00000000-0000-4000-8000-00000000000d";
const E: &str = "00000000-0000-4000-8000-00000000000e";

fn user(id: &str, parent: Option<&str>, text: &str) -> String {
    let parent = parent.map_or("null".to_owned(), |parent| format!("\"{parent}\""));
    format!(
        r#"{{"type":"user","uuid":"{id}","parentUuid":{parent},"timestamp":"2025-06-01T00:00:00.123Z","message":{{"role":"user","content":"{text}"}}}}"#
    )
}

fn outline(text: &str) -> String {
    let imported = read(text.as_bytes());
    let steps = imported.sessions.iter().flat_map(|session| &session.steps);
    let mut lines: Vec<String> = steps
        .map(|step| match step {
            ImportStep::Message(message) if message.machine_generated => {
                format!("{} meta", message.line)
            }
            ImportStep::Message(message) => message.line.to_string(),
            ImportStep::Rewind(to) => format!("rewind {to:?}"),
            ImportStep::Compacted(it) => {
                let span = it.first.map_or(String::new(), |_| " of a span".to_owned());
                let tokens = it.before_tokens.unwrap_or(0);
                let how = if it.manual { "manual" } else { "auto" };
                let (line, kept) = (it.summary.line, it.kept.len());
                format!("compacted{span} by {line}, {kept} kept, {how}, {tokens}")
            }
            ImportStep::Removed { line, messages } => format!("{line} removes {}", messages.len()),
        })
        .collect();
    lines.extend(imported.defects.iter().map(ToString::to_string));
    lines.join("; ")
}

#[test]
fn an_abandoned_branch_is_removed_by_a_rewind() {
    let text = [
        user(A, None, "one"),
        user(B, Some(A), "two"),
        user(C, Some(B), "more"),
        user(D, Some(A), "two again"),
    ]
    .join("\n");
    assert_eq!(outline(&text), format!("1; 2; 3; rewind Some({A}); 4"));
}

fn mark(metadata: &str) -> String {
    format!(
        r#"{{"type":"system","subtype":"compact_boundary","uuid":"{E}","content":"Conversation compacted","isMeta":false,"compactMetadata":{metadata}}}"#
    )
}

fn summary(id: &str) -> String {
    user(id, Some(E), "so far").replacen('{', r#"{"isCompactSummary":true,"#, 1)
}

#[test]
fn a_summary_replaces_the_messages_of_its_boundary() {
    let check = |mark: String, summary: String, expected: &str| {
        let text = [
            user(A, None, "one"),
            user(B, Some(A), "two"),
            mark,
            summary,
            user(D, Some(C), "three"),
        ];
        assert_eq!(outline(&text.join("\n")), expected);
    };
    let plain = r#"{"trigger":"auto","preTokens":167094}"#;
    check(
        mark(plain),
        summary(C),
        "1; 2; compacted by 4, 0 kept, auto, 167094; 5",
    );
    let segment = format!(
        r#"{{"trigger":"manual","preTokens":9,"preservedSegment":{{"headUuid":"{B}","anchorUuid":"{A}","tailUuid":"{B}"}}}}"#
    );
    check(
        mark(&segment),
        summary(C),
        "1; 2; compacted by 4, 1 kept, manual, 9; 5",
    );
    // An older form has the boundary inside the message, with the kept messages and the id of the
    // summary.
    let older = format!(
        r#"{{"type":"system","message":{{"type":"compact_boundary","compactMetadata":{{"compactType":"auto","preCompactTokenCount":7,"preservedSegment":{{"summaryMessageUuid":"{C}","preservedMessageUuids":["{A}","{B}","{D}"]}}}}}}}}"#
    );
    let plain_summary = user(C, None, "so far").replacen('{', r#"{"isMeta":true,"#, 1);
    // No line before the boundary has the listed message D.
    check(
        older,
        plain_summary.clone(),
        "1; 2; compacted by 4, 2 kept, auto, 7; 5",
    );
    // Another form has the boundary in a user message that no person wrote.
    let of_user = mark(plain).replace(r#""type":"system""#, r#""type":"user""#);
    let of_user = of_user.replace(r#""isMeta":false"#, r#""isMeta":true"#);
    check(
        of_user,
        plain_summary,
        "1; 2; compacted by 4, 0 kept, auto, 167094; 5",
    );
    check(
        mark(plain),
        user(C, None, "no summary"),
        "1; 2; 4; 5; line 3: marks a compaction without a summary",
    );
}

#[test]
fn removed_and_collapsed_messages_leave_the_view() {
    let removal = format!(
        r#"{{"type":"system","subtype":"snip_boundary","snipMetadata":{{"removedUuids":["{A}","{D}"]}}}}"#
    );
    let folded = |last: &str| {
        format!(
            r#"{{"type":"marble-origami-commit","collapseId":"1","summaryUuid":"{C}","summaryContent":"<collapsed id=\"1\">so far</collapsed>","firstArchivedUuid":"{A}","lastArchivedUuid":"{last}"}}"#
        )
    };
    let words = user(
        B,
        Some(A),
        r#"{\"removedUuids\":[],\"compactMetadata\":{}}"#,
    );
    let text = [user(A, None, "one"), words, removal, folded(B), folded(D)];
    // No line has the message D, so one message is removed, and the second span is a defect.
    assert_eq!(
        outline(&text.join("\n")),
        "1; 2; 3 removes 1; compacted of a span by 4, 0 kept, auto, 0; \
         line 5: folds messages that are not there"
    );
}

#[test]
fn unreadable_lines_are_reported_by_number() {
    let text = format!(
        "{}\nnot json\n\n{{\"type\":\"user\"}}\n[1]\n",
        user(A, None, "one")
    );
    assert_eq!(
        outline(&text),
        "1; line 2: is not JSON (column 2); line 4: has no message; \
         line 5: is JSON, but not a line of this format"
    );
}

#[test]
fn injected_messages_are_machine_generated() {
    let text = user(A, None, "<command-name>/clear</command-name>");
    assert_eq!(outline(&text), "1 meta");
}

#[test]
fn operator_instructions_are_appended_to_a_message() {
    let text = format!(
        r#"{{"type":"system","uuid":"{A}","isMeta":true,"message":{{"role":"system","content":"be kind"}}}}
        {{"type":"system","uuid":"{B}","content":"Conversation compacted","isMeta":false}}"#
    );
    assert_eq!(outline(&text), "1 meta");
    assert_eq!(read(text.as_bytes()).skipped, [("system".to_owned(), 1)]);
}

#[test]
fn timestamps_are_parsed() {
    let millis = |text| utc::parse(text).map(Timestamp::as_millis);
    assert_eq!(millis("1970-01-01T00:00:00.000Z"), Some(0));
    assert_eq!(millis("2024-02-29T12:34:56.789Z"), Some(1_709_210_096_789));
    assert_eq!(millis("2025-13-01T00:00:00.000Z"), None);
    assert_eq!(millis("yesterday"), None);
}

#[test]
fn listed_messages_are_kept_instead_of_a_segment() {
    let text = |metadata: String| {
        [
            user(A, None, "one"),
            user(B, Some(A), "two"),
            user(C, Some(B), "three"),
            mark(&metadata),
            summary(D),
        ]
        .join("\n")
    };
    let segment = format!(r#""preservedSegment":{{"headUuid":"{A}","tailUuid":"{C}"}}"#);
    for (listed, kept) in [
        (String::new(), 3),
        // Claude Code 2.1 writes both.
        (
            format!(r#","preservedMessages":{{"anchorUuid":"{D}","uuids":["{A}","{C}"]}}"#),
            2,
        ),
    ] {
        let told = outline(&text(format!("{{{segment}{listed}}}")));
        assert_eq!(
            told,
            format!("1; 2; 3; compacted by 5, {kept} kept, auto, 0")
        );
    }
}

#[test]
fn lines_that_repeat_content_for_the_view_are_skipped() {
    let result = |id: &str, text: &str| {
        let content = format!(r#"[{{"type":"tool_result","tool_use_id":"t","content":"{text}"}}]"#);
        user(id, None, "").replace("\"content\":\"\"", &format!("\"content\":{content}"))
    };
    let cleared = format!(
        r#"{{"type":"system","subtype":"microcompact_boundary","uuid":"{E}","microcompactMetadata":{{"compactedToolIds":["t"]}}}}"#
    );
    let collapsed = format!(
        r#"{{"type":"marble-origami-commit","summaryUuid":"{D}","summaryContent":"it was said","firstArchivedUuid":"{A}","lastArchivedUuid":"{A}"}}"#
    );
    let text = [
        result(A, "the content"),
        cleared,
        result(B, "[cleared]"),
        // Another call with the same id.
        result(C, "later content"),
        collapsed,
        user(D, None, "it was said"),
    ]
    .join("\n");
    assert_eq!(
        outline(&text),
        "1; 4; compacted of a span by 5, 0 kept, auto, 0"
    );
}
