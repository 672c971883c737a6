//! Tests of the importer on synthetic files, valid and damaged.

use std::fmt::Write as _;

use super::*;

const HEAD: &str = r#"{"palimpsest":"transcript","version":1,"session":"projects/p/sessions/s","revision":9,"title":"t","branch":"b","attributes":{"k":"v"}}"#;

fn id(number: u64) -> String {
    format!("00000000-0000-4000-8000-{number:012x}")
}

fn line(number: u64, visibility: &str, kind: &str) -> String {
    format!(
        r#"{{"id":"{}","ordinal":{number},"revision":{number},"visibility":"{visibility}","kind":"{kind}","message":{{"role":"user","content":[{{"type":"text","text":"{number}"}}]}}}}"#,
        id(number)
    )
}

/// Returns an exported file with the given header and lines.
fn file(head: &str, lines: &[String]) -> String {
    let mut text = format!("{head}\n");
    for line in lines {
        text.push_str(line);
        text.push('\n');
    }
    let mut sha256 = String::new();
    for byte in Sha256::digest(&text) {
        let _ = write!(sha256, "{byte:02x}");
    }
    let messages = lines.len();
    text + &format!("{{\"messages\":{messages},\"sha256\":\"{sha256}\"}}\n")
}

/// Returns the steps of a file in short form, or its defect.
fn outline(text: &str) -> String {
    let imported = read(text.as_bytes());
    assert!(imported.is_atomic);
    assert!(imported.defects.is_empty() || imported.sessions.is_empty());
    let number = |id: &MessageId| id.get().as_u128() & 0xff;
    let steps = imported.sessions.iter().flat_map(|session| &session.steps);
    let mut words: Vec<String> = steps
        .map(|step| match step {
            ImportStep::Message(message) => number(&message.id.unwrap()).to_string(),
            ImportStep::Rewind(to) => format!("rewind to {:?}", to.as_ref().map(number)),
            ImportStep::Compacted(it) => format!(
                "{} for all but {:?}",
                number(&it.summary.id.unwrap()),
                it.kept.iter().map(number).collect::<Vec<_>>()
            ),
            ImportStep::Removed { messages, .. } => {
                format!(
                    "without {:?}",
                    messages.iter().map(number).collect::<Vec<_>>()
                )
            }
        })
        .collect();
    words.extend(imported.defects.iter().map(ToString::to_string));
    words.join("; ")
}

#[track_caller]
fn check(lines: &[(&str, &str)], expected: &str) {
    let lines = (1..).zip(lines);
    let lines: Vec<_> = lines
        .map(|(number, (visibility, kind))| line(number, visibility, kind))
        .collect();
    assert_eq!(outline(&file(HEAD, &lines)), expected);
}

#[test]
fn messages_outside_the_view_stay_outside_after_import() {
    let ordinary = |visibility| (visibility, "ORDINARY");
    check(&[], "");
    check(&[ordinary("VISIBLE"), ordinary("VISIBLE")], "1; 2");
    check(
        &["VISIBLE", "REWOUND", "REWOUND", "VISIBLE", "REWOUND"].map(ordinary),
        "1; 2; 3; rewind to Some(1); 4; 5; rewind to Some(4)",
    );
    check(
        &["REWOUND", "VISIBLE"].map(ordinary),
        "1; rewind to None; 2",
    );
    check(
        &["SNIPPED", "VISIBLE", "SNIPPED"].map(ordinary),
        "1; 2; 3; without [1, 3]",
    );
    check(
        &[
            ordinary("COMPACTED"),
            ordinary("VISIBLE"),
            ("VISIBLE", "BOUNDARY"),
            ("VISIBLE", "SUMMARY"),
            ("VISIBLE", "ATTACHMENT"),
            ordinary("COLLAPSED"),
        ],
        "1; 2; 4 for all but [2]; 5; 6",
    );
    // A withdrawn summary leaves no trace.
    check(
        &[
            ordinary("VISIBLE"),
            ("WITHDRAWN", "SUMMARY"),
            ordinary("VISIBLE"),
        ],
        "1; 3",
    );
}

#[test]
fn metadata_of_the_session_is_read() {
    let text = file(HEAD, &[]);
    let session = read(text.as_bytes()).sessions.remove(0);
    assert_eq!(
        (session.title.as_deref(), &*session.branch),
        (Some("t"), "b")
    );
    assert_eq!(session.attributes, [("k".into(), "v".into())]);
}

#[track_caller]
fn refused(text: &str, expected: &str) {
    let said = outline(text);
    assert!(said.contains(expected), "{said}");
}

#[test]
fn a_damaged_file_is_rejected_completely() {
    let good = file(
        HEAD,
        &[
            line(1, "VISIBLE", "ORDINARY"),
            line(2, "VISIBLE", "ORDINARY"),
        ],
    );
    refused("", "line 1: is missing");
    // A file that is cut at any position is rejected.
    // Without its last line break, the file is complete.
    for end in 1..good.len() - 1 {
        let said = outline(&good[..end]);
        assert!(said.starts_with("line "), "cut at {end}: {said}");
    }
    let lines: Vec<&str> = good.lines().collect();
    refused(
        &lines[..3].join("\n"),
        "line 3: is not the end of an export",
    );
    refused(
        &good.replacen("\"text\":\"1\"", "\"text\":\"7\"", 1),
        "line 4: does not fit",
    );
    let without = [lines[0], lines[1], lines[3]].join("\n");
    refused(&without, "line 3: does not fit");
    refused(&format!("{good}{{}}"), "line 5: is not the end");
    refused(&good[lines[0].len() + 1..], "line 1: is no beginning");
    refused("{\"type\":\"user\"}\n", "line 1: is no beginning");
    let of = |head: &str| file(head, &[]);
    refused(
        &of(&HEAD.replace("\"version\":1", "\"version\":2")),
        "line 1: has version 2",
    );
    refused(
        &of(&HEAD.replace("transcript", "other")),
        "line 1: is no beginning",
    );
    refused(
        &of(&HEAD.replace("\"title\"", "\"partial\":true,\"title\"")),
        "a part of a session",
    );
    // The digest is valid, but a line is not.
    let one = |line: String| file(HEAD, &[line]);
    refused(&one("{}".into()), "line 2: is no message of this format");
    refused(
        &one(line(1, "SEEN", "ORDINARY")),
        "line 2: is no message of this format",
    );
    refused(
        &one(line(1, "VISIBLE", "ORDINARY").replace("\"user\"", "\"tool\"")),
        "line 2: has a message",
    );
    refused(
        &one(line(1, "VISIBLE", "ORDINARY").replace(&id(1), "1")),
        "line 2: has an id",
    );
    let twice = [
        line(1, "VISIBLE", "ORDINARY"),
        line(1, "VISIBLE", "ORDINARY"),
    ];
    refused(&file(HEAD, &twice), "line 3: repeats the id");
}
