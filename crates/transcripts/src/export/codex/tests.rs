//! Tests that a resume of an exported session shows its view, and that the importer reads the file.

use std::collections::HashMap;
use std::sync::Arc;

use palimpsest_core::event::Event;
use palimpsest_core::ids::MessageId;
use palimpsest_histories::{BlockDraft, MessageDraft, Operation, SessionHarness, operation};
use proptest::prelude::*;

use super::*;
use crate::import::{self, ImportFormat};

/// Returns the lines of the exported file.
fn export(world: &SessionHarness) -> Vec<Value> {
    let events = world.log.iter().map(|recorded| &recorded.event);
    let messages = events.flat_map(Event::messages);
    let messages: HashMap<MessageId, &Arc<Message>> = messages
        .map(|appended| (appended.message.id, &appended.message))
        .collect();
    let mut writer = CodexWriter::of(&world.session).unwrap();
    let mut out = writer.begin();
    for (ordinal, entry) in world.session.transcript().entries() {
        out.extend(writer.message(&OriginalMessage {
            ordinal,
            entry: entry.clone(),
            message: Arc::clone(messages[&entry.id]),
            unreadable: Vec::new(),
        }));
    }
    out.extend(writer.end());
    let imported = import::read(Some(ImportFormat::Codex), &out);
    assert_eq!(imported.unrecognized, None);
    assert_eq!(imported.defects, []);
    let file = String::from_utf8(out).unwrap();
    let lines = file.lines().map(|line| serde_json::from_str(line).unwrap());
    lines.collect()
}

/// Returns the items that Codex sends after a resume.
fn resumed(lines: &[Value]) -> Vec<Value> {
    let mut history: Vec<Value> = Vec::new();
    for line in lines {
        let payload = &line["payload"];
        match line["type"].as_str().unwrap() {
            "response_item" => history.push(payload.clone()),
            "compacted" => {
                history.clone_from(payload["replacement_history"].as_array().unwrap());
            }
            _ => {}
        }
    }
    history
}

/// Returns the contents of items without the fields in which a view differs from a transcript.
fn contents(items: &[Value]) -> Vec<String> {
    let mut contents = Vec::new();
    for item in items {
        match item["type"].as_str() {
            // Another model gets no reasoning back.
            Some("reasoning") => {}
            Some("message") => {
                let parts = item["content"].as_array().cloned();
                let parts = parts.unwrap_or_else(|| vec![item["content"].clone()]);
                let texts = parts.iter().map(|part| {
                    let text = part["text"].as_str().or(part.as_str());
                    text.unwrap_or("no text").trim()
                });
                // Blank texts and blocks of other providers differ in a view.
                let is_equal = |text: &&str| {
                    !(text.is_empty()
                        || text.ends_with("this format does not have it]")
                        || text.ends_with("this provider does not take it]"))
                };
                let texts = texts.filter(is_equal);
                contents.extend(texts.map(|text| format!("{} {text}", item["role"])));
            }
            _ => contents.push(format!("{} {}", item["type"], item["call_id"])),
        }
    }
    contents
}

/// Returns the items of the whole view.
fn of_view(session: &Session) -> Vec<Value> {
    let mut pieces = session.sealed().pieces().to_vec();
    pieces.extend(extend_layout(session, false, None).unwrap().pieces);
    let items = items(session, &pieces).unwrap();
    let items = items
        .iter()
        .map(|item| serde_json::from_slice(item).unwrap());
    items.collect()
}

proptest! {
    #[test]
    fn a_resume_shows_the_view(operations in prop::collection::vec(operation(), 1..40)) {
        let mut world = SessionHarness::new();
        for operation in &operations {
            world.step(operation);
        }
        world.load_content();
        let lines = export(&world);
        prop_assert_eq!(&lines[0]["type"], "session_meta");
        // The file has messages that no view contains yet: unconfirmed responses, and messages after an open call.
        let mut entries = world.session.transcript().entries();
        prop_assume!(!entries.any(|(_, entry)| entry.visibility == Visibility::Unconfirmed));
        prop_assume!(!extend_layout(&world.session, false, None).unwrap().defers_message);
        let mut sent = contents(&resumed(&lines));
        let mut shown = contents(&of_view(&world.session));
        let history = lines.iter().find(|line| line["type"] == "compacted");
        let history = history.and_then(|line| line["payload"]["replacement_history"].as_array());
        let recorded = history.map_or(0, |history| contents(history).len());
        // Later calls and results have the order of the transcript. A view has each result after its response.
        sent[recorded..].sort_unstable();
        shown[recorded..].sort_unstable();
        prop_assert_eq!(sent, shown, "{:#?}", lines);
    }
}

#[test]
fn a_session_has_a_stable_id() {
    let world = SessionHarness::new();
    let id = |world: &SessionHarness| export(world)[0]["payload"]["id"].clone();
    assert_eq!(id(&world), id(&SessionHarness::new()));
    assert!(Uuid::try_parse(id(&world).as_str().unwrap()).is_ok());
}

#[test]
fn a_response_that_the_caller_replaced_is_left_out() {
    let mut world = SessionHarness::new();
    world.step(&Operation::Append(vec![MessageDraft::User {
        meta: false,
        parts: vec![BlockDraft::Words(1)],
    }]));
    // This number of an array records one response.
    world.step(&Operation::Sync(1));
    let is_unconfirmed = |world: &SessionHarness| {
        let mut entries = world.session.transcript().entries();
        entries.any(|(_, entry)| entry.visibility == Visibility::Unconfirmed)
    };
    assert!(is_unconfirmed(&world));
    world.step(&Operation::Append(vec![MessageDraft::Assistant {
        response: 0,
        parts: vec![BlockDraft::Words(77)],
    }]));
    assert!(!is_unconfirmed(&world));
    world.load_content();
    let lines = export(&world);
    let items = lines
        .iter()
        .filter(|line| line["type"] == "response_item" && line["payload"]["role"] == "assistant");
    let texts: Vec<String> = items.map(|line| line["payload"].to_string()).collect();
    assert_eq!(texts.len(), 1, "{lines:#?}");
    assert!(texts[0].contains("words 77"), "{texts:?}");
}
