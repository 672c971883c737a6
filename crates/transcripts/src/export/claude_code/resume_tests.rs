//! Tests that a resume and an import of an exported session show its view.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use crate::export::view_items::{ViewItem, view_items};
use crate::import::{self, ImportFormat, ImportStep};
use palimpsest_core::event::Event;
use palimpsest_core::ids::SpanKey;
use palimpsest_histories::{SessionHarness, operation};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;

use super::*;

/// Returns the exported file of a session.
fn export(world: &SessionHarness) -> String {
    let events = world.log.iter().map(|recorded| &recorded.event);
    let messages = events.flat_map(Event::messages);
    let messages: HashMap<MessageId, &Arc<Message>> = messages
        .map(|appended| (appended.message.id, &appended.message))
        .collect();
    let mut writer = ClaudeCodeWriter::of(&world.session);
    let mut out = Vec::new();
    for (ordinal, entry) in world.session.transcript().entries() {
        out.extend(writer.message(&OriginalMessage {
            ordinal,
            entry: entry.clone(),
            message: Arc::clone(messages[&entry.id]),
            unreadable: Vec::new(),
        }));
    }
    out.extend(writer.end());
    String::from_utf8(out).unwrap()
}

/// Returns the recorded responses that the caller replaced or did not send back.
fn superseded(world: &SessionHarness) -> Vec<MessageId> {
    let events = world.log.iter().map(|recorded| &recorded.event);
    let messages = events.flat_map(Event::messages);
    let of_caller: BTreeSet<MessageId> = messages
        .filter(|appended| appended.message.transcript_only)
        .map(|appended| appended.message.id)
        .collect();
    let entries = world.session.transcript().entries();
    let hidden = entries.filter(|(_, entry)| entry.visibility == Visibility::TranscriptOnly);
    let hidden = hidden.map(|(_, entry)| entry.id);
    hidden.filter(|id| !of_caller.contains(id)).collect()
}

/// Returns the ids of the lines that Claude Code sends after a resume, in order.
fn resumed(file: &str) -> Vec<String> {
    let lines: Vec<Value> = file
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let is_message = |line: &Value| line["type"] == "user" || line["type"] == "assistant";
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let by_id: HashMap<String, (usize, &Value)> = (lines.iter().enumerate())
        .filter_map(|(at, line)| Some((text(&line["uuid"])?, (at, line))))
        .collect();
    let is_boundary = |line: &Value| line["subtype"] == "compact_boundary";
    let boundary = lines.iter().rposition(is_boundary);
    let named = lines.iter().find(|line| line["type"] == "last-prompt");
    let last = lines.iter().rfind(|line| is_message(line));
    let leaf = match named {
        Some(line) => text(&line["leafUuid"]),
        None => last.and_then(|line| text(&line["uuid"])),
    };
    let mut chain: Vec<(usize, String)> = Vec::new();
    let mut next = leaf;
    while let Some(id) = next {
        let (at, line) = by_id[&id];
        next = text(&line["parentUuid"]);
        if is_message(line) {
            chain.push((at, id));
        } else {
            assert!(is_boundary(line) && Some(at) == boundary, "{line}");
            assert_eq!(next, None);
        }
    }
    chain.reverse();
    // Before the boundary, Claude Code keeps the segment between the head and the tail only.
    if let Some(boundary) = boundary {
        let segment = &lines[boundary]["compactMetadata"]["preservedSegment"];
        let index = |id: &Value| {
            let id = id.as_str()?;
            chain.iter().position(|(_, known)| known == id)
        };
        let (head, tail) = (index(&segment["headUuid"]), index(&segment["tailUuid"]));
        for (index, (at, _)) in chain.iter().enumerate() {
            assert!(
                *at > boundary || head.is_some_and(|it| it <= index) && tail >= Some(index),
                "{file}"
            );
        }
        if let Some(head) = head {
            let before = head.checked_sub(1).map(|at| &chain[at].1);
            let anchor = text(&segment["anchorUuid"]);
            assert_eq!(
                before.or(text(&lines[boundary]["uuid"]).as_ref()),
                anchor.as_ref()
            );
        }
    }
    chain.into_iter().map(|(_, id)| id).collect()
}

/// Returns the messages that an import shows.
fn imported(file: &str) -> BTreeSet<MessageId> {
    let imported = import::read(Some(ImportFormat::ClaudeCode), file.as_bytes());
    assert_eq!(imported.defects, [], "{file}");
    let mut shown: Vec<MessageId> = Vec::new();
    for step in imported.sessions.iter().flat_map(|session| &session.steps) {
        match step {
            ImportStep::Message(message) => shown.push(message.id.unwrap()),
            ImportStep::Rewind(to) => {
                // The target of a rewind stays.
                let place = to.map(|to| shown.iter().position(|id| *id == to).unwrap() + 1);
                shown.truncate(place.unwrap_or(0));
            }
            ImportStep::Removed { messages, .. } => {
                assert!(messages.iter().all(|id| shown.contains(id)), "{file}");
                shown.retain(|id| !messages.contains(id));
            }
            ImportStep::Compacted(compaction) => {
                let place = |id: Option<MessageId>| {
                    id.map(|id| shown.iter().position(|known| *known == id).unwrap())
                };
                // A compaction without a span replaces all messages.
                let first = place(compaction.first).unwrap_or(0);
                let last = place(compaction.last).map_or(shown.len(), |last| last + 1);
                let replaced: Vec<MessageId> = shown.drain(first..last).collect();
                let kept = replaced.iter().filter(|id| compaction.kept.contains(id));
                let summary = compaction.summary.id;
                let new = summary.into_iter().chain(kept.copied());
                let new: Vec<MessageId> = new.collect();
                shown.splice(first..first, new);
            }
        }
    }
    shown.into_iter().collect()
}

fn check(world: &SessionHarness) {
    let file = export(world);
    let session = &world.session;
    let chain = Chain::of(session);
    let transcript = session.transcript();
    let mut expected = Vec::new();
    for item in view_items(session) {
        match item {
            ViewItem::Message(at) => {
                let entry = transcript.get(at).unwrap();
                if !matches!(entry.role, Role::System | Role::Developer) {
                    expected.push(chain.link(at).unwrap().id.to_string());
                }
            }
            ViewItem::Placeholder(key) => expected.push(placeholder(session, key).to_string()),
        }
    }
    if !expected.is_empty() {
        assert_eq!(resumed(&file), expected, "{file}");
    }
    for id in superseded(world) {
        let line = format!(r#""uuid":"{id}""#);
        assert!(!file.contains(&line), "{id}: {file}");
    }
    let shown = imported(&file);
    let visible = transcript.entries().filter(|(_, entry)| {
        matches!(
            entry.visibility,
            Visibility::Visible | Visibility::Unconfirmed | Visibility::Reemission(_)
        )
    });
    let visible: BTreeSet<MessageId> = visible.map(|(_, entry)| entry.id).collect();
    let of_view = view_items(session).into_iter().map(|item| match item {
        ViewItem::Message(at) => transcript.get(at).unwrap().id,
        ViewItem::Placeholder(key) => placeholder(session, key),
    });
    let of_view: BTreeSet<MessageId> = of_view.collect();
    let missing: Vec<_> = of_view.difference(&shown).collect();
    assert!(missing.is_empty(), "{missing:?}: {file}");
    // A visible message without content has no place in the view.
    let known: BTreeSet<MessageId> = of_view.union(&visible).copied().collect();
    let added: Vec<_> = shown.difference(&known).collect();
    assert!(added.is_empty(), "{added:?}: {file}");
}

/// Returns the id of the line that replaces a span.
fn placeholder(session: &Session, key: SpanKey) -> MessageId {
    let placeholder = session.spans().placeholder(key).unwrap();
    let first = session.collapsed_messages(placeholder).next().unwrap();
    LineId::Placeholder.of(session.transcript().get(first).unwrap().id)
}

proptest! {
    #[test]
    fn a_resume_and_an_import_show_the_view(operations in prop::collection::vec(operation(), 1..40)) {
        let mut world = SessionHarness::new();
        for operation in &operations {
            world.step(operation);
        }
        check(&world);
    }
}

/// The property above would hold without these records.
#[test]
fn random_histories_contain_each_record() {
    // A fixed seed makes the histories the same in each run.
    let mut runner = TestRunner::deterministic();
    let histories = prop::collection::vec(operation(), 40..80);
    let mut records = BTreeSet::new();
    for _ in 0..200 {
        let operations = histories.new_tree(&mut runner).unwrap().current();
        let mut world = SessionHarness::new();
        for operation in &operations {
            world.step(operation);
        }
        if !superseded(&world).is_empty() {
            records.insert("superseded".to_owned());
        }
        let file = export(&world);
        let imported = import::read(Some(ImportFormat::ClaudeCode), file.as_bytes());
        let mut steps = imported.sessions.iter().flat_map(|session| &session.steps);
        if steps.any(|step| matches!(step, ImportStep::Rewind(_))) {
            records.insert("rewind".to_owned());
        }
        for line in file.lines() {
            let line: Value = serde_json::from_str(line).unwrap();
            let kind = line["subtype"].as_str().or(line["type"].as_str());
            records.insert(kind.unwrap().to_owned());
            let segment = &line["compactMetadata"]["preservedSegment"]["headUuid"];
            if segment.is_string() {
                records.insert("segment".to_owned());
            }
        }
    }
    for record in [
        "rewind",
        "superseded",
        "compact_boundary",
        "segment",
        "snip_boundary",
        "microcompact_boundary",
        "marble-origami-commit",
        "last-prompt",
    ] {
        assert!(records.contains(record), "{record}: {records:?}");
    }
}
